"""Training loops: `python mindspore_loops.py LOOP,LOOP [FOLDER]`.

With a folder they call Probe where a careful user would, and their dumps go to FOLDER/LOOP. Prints the weights' digest,
and random numbers drawn afterwards: equal lines mean equal bits.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

#: Level of each loop: in a graph there are no functions to record.
LEVELS = {
    "functional": "mix",
    "untold": "mix",
    "train_cell": "mix",
    "model": "mix",
    "in_turns": "L1",
    "together": "mix",
    "distilled": "mix",
    "averaged": "mix",
    "held": "mix",
    "frozen": "mix",
    "graph": "L0",
    "jitted": "L0",
    "jitted_gradients": "L0",
}


class Nothing:
    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Dense(8, 16), nn.Dropout(p=0.1), nn.Dense(16, 4)

    def construct(self, x):  # type: ignore[no-untyped-def]
        return self.b(self.drop(ops.relu(self.a(x))))


def batches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    random = np.random.default_rng(0)
    for _ in range(count):
        yield (
            Tensor(random.normal(size=(6, 8)).astype(np.float32)),
            Tensor(random.integers(0, 4, 6).astype(np.int32)),
        )


Work = Callable[[Tensor, Tensor], Any]


def steps(h: Any, net: nn.Cell, step: Work, between: Callable[[Tensor], object] = lambda x: None) -> nn.Cell:
    """Take four steps; between two of them do something else with a batch."""
    for x, y in batches(4):
        h.start(net)
        step(x, y)
        h.stop()
        h.step()
        between(x)
    return net


def by(take: Work, update: Callable[[Any], Any]) -> Work:
    """Return a step of gradients and an update."""
    return lambda x, y: update(take(x, y)[1])


def functional(h: Any) -> nn.Cell:
    """The loop of MindSpore's own lessons, with an evaluation between two steps."""
    net = Net()
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    loss = nn.CrossEntropyLoss()

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return loss(net(x), y)

    take = ms.value_and_grad(forward, None, optimizer.parameters)

    def evaluate(x: Tensor) -> None:
        net.set_train(False)
        net(x)
        net.set_train()

    return steps(h, net, by(take, optimizer), evaluate)


def untold(h: Any) -> nn.Cell:
    """Nobody says set_train(), functions are looked up before the model is called, and gradients are clipped."""
    net = Net()
    optimizer = ms.experimental.optim.AdamW(net.trainable_params(), lr=1e-2)

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return ops.cross_entropy(net(x), y)

    take = ms.value_and_grad(forward, None, net.trainable_params())
    return steps(h, net, by(take, lambda gradients: optimizer(ops.clip_by_global_norm(gradients, 1.0))))


def train_cell(h: Any) -> nn.Cell:
    """A Cell of MindSpore's is the whole step."""
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    step.set_train()
    return steps(h, net, step)


def graph(h: Any) -> nn.Cell:
    ms.set_context(mode=ms.GRAPH_MODE)
    return train_cell(h)


class Trainer:
    """Holds what trains, as a plain object."""

    def __init__(self) -> None:
        self.net = Net()
        self.net.set_train()
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-2)
        self.take = ms.value_and_grad(self.forward, None, self.optimizer.parameters)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.cross_entropy(self.net(x), y)


def jitted(h: Any) -> nn.Cell:
    """One compiled function is the whole step."""
    net = Net()
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)

    def forward(x, y):  # type: ignore[no-untyped-def]
        return ops.cross_entropy(net(x), y)

    take = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(x, y):  # type: ignore[no-untyped-def]
        loss, gradients = take(x, y)
        optimizer(gradients)
        return loss

    return steps(h, net, step)


def jitted_gradients(h: Any) -> nn.Cell:
    """The gradients are compiled, the update is not."""
    trainer = Trainer()
    take = trainer.take

    @ms.jit
    def gradients_of(x, y):  # type: ignore[no-untyped-def]
        return take(x, y)

    return steps(h, trainer.net, by(gradients_of, trainer.optimizer))


def model(h: Any) -> nn.Cell:
    """`Model.train`, whose loop is in MindSpore."""
    from probe_mindspore import ProbeStep

    net = Net()
    data = ms.dataset.GeneratorDataset(
        [(x.asnumpy()[0], y.asnumpy()[0]) for x, y in batches(8)], ["x", "y"], shuffle=False
    ).batch(2)
    trained = ms.train.Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-2))
    callbacks = [] if isinstance(h, Nothing) else [ProbeStep(h)]
    trained.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    return net


def in_turns(h: Any) -> nn.Cell:
    """Two optimizers take turns."""
    nets = Net(), Net()
    optimizers = [nn.SGD(net.trainable_params(), 0.1) for net in nets]
    takes = [
        ms.value_and_grad(lambda x, y, net=net: ops.cross_entropy(net(x), y), None, optimizer.parameters)
        for net, optimizer in zip(nets, optimizers, strict=True)
    ]
    for x, y in batches(2):
        for take, optimizer in zip(takes, optimizers, strict=True):
            h.start(list(nets))
            _, gradients = take(x, y)
            optimizer(gradients)
            h.stop()
            h.step()
    return nn.CellList(list(nets))


def together(h: Any) -> nn.Cell:
    """Each of two optimizers has its own parameters of one model, and both step in every iteration."""
    net = Net()
    net.set_train()
    optimizers = [nn.SGD(net.a.trainable_params(), 0.1), nn.Adam(net.b.trainable_params(), 1e-2)]
    weights = [p for optimizer in optimizers for p in optimizer.parameters]
    take = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, ms.ParameterTuple(weights))

    def update(gradients: Any) -> None:
        optimizers[0](gradients[:2])
        optimizers[1](gradients[2:])

    return steps(h, net, by(take, update))


def distilled(h: Any) -> nn.Cell:
    """A teacher that is not trained answers within the step, and has gradients too."""
    net, teacher = Net(), Net()
    net.set_train()
    teacher.set_train(False)
    optimizer = nn.Adam(net.trainable_params(), 1e-2)

    def forward(x: Tensor, _: Tensor) -> Tensor:
        return (net(x) - teacher(x)).abs().mean()

    return steps(h, net, by(ms.value_and_grad(forward, None, optimizer.parameters), optimizer))


def averaged(h: Any) -> nn.Cell:
    """Keep an average of the weights in a copy, and validate with it."""
    net, average = Net(), Net()
    net.set_train()
    average.set_train(False)
    optimizer = nn.Adam(net.trainable_params(), nn.cosine_decay_lr(0.0, 1e-2, 4, 1, 4))
    take = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)

    def average_and_validate(x: Tensor) -> None:
        for kept, p in zip(average.get_parameters(), net.get_parameters(), strict=True):
            kept.set_data(kept * 0.9 + p * 0.1)
        average(x)

    return steps(h, net, by(take, optimizer), average_and_validate)


def held(h: Any) -> nn.Cell:
    """Cells that are never called hold the model from the second step on."""
    net = Net()
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    holders: list[nn.Cell] = []

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return nn.CrossEntropyLoss()(net(x), y)

    take = ms.value_and_grad(forward, None, optimizer.parameters)
    return steps(h, net, by(take, optimizer), lambda x: holders.append(nn.SequentialCell(net)))


def frozen(h: Any) -> nn.Cell:
    """Train the last layer of a model in evaluation mode."""
    net = Net()
    net.set_train(False)
    optimizer = nn.SGD(net.b.trainable_params(), 0.1)
    take = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
    return steps(h, net, by(take, optimizer))


def main(name: str, folder: str) -> None:
    ms.set_context(
        mode=ms.PYNATIVE_MODE, runtime_num_threads=1
    )  # with more, kernels share sums as time allows
    ms.set_seed(1)
    h: Any = Nothing()
    if folder:
        from probe_mindspore import PrecisionDebugger

        h = PrecisionDebugger(dump_path=f"{folder}/{name}", level=LEVELS[name], step=[1, 2])
    net = globals()[name](h)
    ms.runtime.synchronize()
    if folder:
        h.close()
    digest = hashlib.sha256()
    for p in net.get_parameters():
        digest.update(p.asnumpy().tobytes())
    print(name, digest.hexdigest(), ops.rand(1).asnumpy(), np.random.random(), flush=True)


if __name__ == "__main__":
    for loop in sys.argv[1].split(","):
        main(loop, *sys.argv[2:] or ("",))
