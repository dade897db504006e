"""Small networks that between them do what real MindSpore training code does, and one way to train them all.

Every case is seeded and takes a few milliseconds a step. Gradients are taken in each of the ways MindSpore
offers (_STEPS); what comes out is every loss, gradient and parameter, as arrays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

VOCAB = 17
WIDTH = 8


# ---------------- CNN: BatchNorm, pooling, residuals, one ReLU called often
class ResBlock(nn.Cell):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, has_bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, has_bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.add = ops.Add()  # a Primitive as an attribute

    def construct(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(self.add(y, x))


class LeNet(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, has_bias=True)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.blocks = nn.CellList([ResBlock(4), ResBlock(4)])
        self.flatten = nn.Flatten()
        self.head = nn.Dense(4 * 4 * 4, 10)

    def construct(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.pool(self.relu(self.bn(self.conv(images))))
        for block in self.blocks:
            x = block(x)
        return ops.cross_entropy(self.head(self.flatten(x)), labels)


# ---------------- GPT: LayerNorm, dropout, a head that shares the embedding's weight
class GptBlock(nn.Cell):
    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.qkv = nn.Dense(WIDTH, 3 * WIDTH)
        self.out = nn.Dense(WIDTH, WIDTH)
        self.mlp = nn.SequentialCell(nn.Dense(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dense(2 * WIDTH, WIDTH))
        # One each: a MindSpore dropout draws other numbers from run to run after its first four calls.
        self.drop1, self.drop2 = nn.Dropout(p=0.1), nn.Dropout(p=0.1)
        self.softmax = ops.Softmax(axis=-1)

    def construct(self, x: Tensor, mask: Tensor | None = None, *, scale: float = 0.5) -> Tensor:
        b, s, d = x.shape
        q, k, v = ops.split(self.qkv(self.ln1(x)), WIDTH, axis=-1)
        q, k, v = (t.reshape(b, s, self.heads, -1).swapaxes(1, 2) for t in (q, k, v))
        scores = mint.matmul(q, k.swapaxes(-1, -2)) * scale
        if mask is not None:
            scores = scores + mask
        y = mint.matmul(self.softmax(scores), v).swapaxes(1, 2).reshape(b, s, d)
        x = x + self.drop1(self.out(y))
        return x + self.drop2(self.mlp(self.ln2(x)))


class Gpt(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(8, WIDTH)
        self.drop = nn.Dropout(p=0.1)
        self.blocks = nn.CellList([GptBlock(), GptBlock()])
        self.norm = nn.LayerNorm((WIDTH,))
        self.head = nn.Dense(WIDTH, VOCAB, has_bias=False)
        self.head.weight = self.tok.embedding_table
        self.mask = Tensor(np.triu(np.full((8, 8), -1e9, np.float32), 1))

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.drop(self.tok(ids) + self.pos(ops.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x, self.mask, scale=0.4)
        logits = self.head(self.norm(x))
        return ops.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


# ---------------- tied: an autoencoder whose decoder is the encoder's weight, and one Cell under two names
class Tied(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.decoder = nn.Dense(WIDTH, WIDTH, has_bias=False)
        self.decoder.weight = self.encoder.weight
        self.act = nn.Tanh()
        self.again = self.encoder

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = self.act(self.again(self.act(self.encoder(x))))
        return ops.mse_loss(self.decoder(hidden), y)


# ---------------- LSTM: tuples in and out, states that nobody uses again
class Lstm(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.head = nn.Dense(WIDTH, VOCAB)

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        out, (h, c) = self.lstm(self.embed(ids))
        state = (h[-1], c[-1])
        for at in range(3):
            state = self.cell(out[:, at], state)
        logits = self.head(out + state[0].expand_dims(1))
        return ops.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


# ---------------- recurrent: one LSTMCell called at every position, each call's state going into the next
class Recurrent(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.cell = nn.LSTMCell(WIDTH, WIDTH)
        self.head = nn.Dense(WIDTH, VOCAB)

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(ids)
        state = (ops.zeros_like(x[:, 0]), ops.zeros_like(x[:, 0]))
        found = []
        for at in range(4):
            state = self.cell(x[:, at], state)
            found.append(state[0])
        logits = self.head(ops.stack(found, axis=1))
        return ops.cross_entropy(logits.reshape(-1, VOCAB), labels[:, :4].reshape(-1))


# ---------------- bprop: Cells that say themselves how gradients go
class Clipped(nn.Cell):
    """The identity, whose gradient is cut off."""

    def construct(self, x: Tensor) -> Tensor:
        return x * 1.0

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (ops.clip_by_value(dout, -0.01, 0.01),)


class Scaled(nn.Cell):
    """Two outputs, and a gradient for each input."""

    def construct(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, x + y

    def bprop(self, x: Tensor, y: Tensor, out: Any, dout: Any) -> tuple[Tensor, Tensor]:
        return dout[0] * y + dout[1], dout[0] * x + dout[1]


class Bprop(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.clipped, self.scaled = Clipped(), Scaled()

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        a = self.clipped(self.fc1(x))
        b, c = self.scaled(a, self.fc2(x))
        return ops.mse_loss(b + c, y)


# ---------------- residual: dicts, keywords, routing by index, lists of outputs
class Expert(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(WIDTH, WIDTH)

    def construct(self, pack: dict[str, Any]) -> dict[str, Tensor]:
        return {"out": self.fc(pack["x"]) * pack["gain"], "norm": pack["x"].square().sum()}


class Split(nn.Cell):
    def construct(self, *, x: Tensor, parts: int) -> list[Tensor]:
        return list(ops.split(x, WIDTH // parts, axis=-1))


class Residual(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.CellList([Expert(), Expert()])
        self.split = Split()
        self.norm = nn.GroupNorm(2, WIDTH)
        self.act = nn.SiLU()

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        total = x
        for i, expert in enumerate(self.experts):
            found = expert({"x": self.act(total), "gain": 0.5 + i})
            total = total + found["out"] + found["norm"] * 1e-3
        first, second = self.split(x=total, parts=2)
        total = ops.cat([second, first], axis=-1)
        return ops.mse_loss(self.norm(total.reshape(-1, WIDTH, 1, 1)).reshape(x.shape), y)


# ---------------- in place: x[i] = ..., assign to a buffer, copy_
class InPlace(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(WIDTH, WIDTH)
        self.head = nn.Dense(WIDTH, WIDTH)
        self.seen = Parameter(Tensor(np.zeros((), np.float32)), name="seen", requires_grad=False)
        self.cache = Parameter(Tensor(np.zeros((4, WIDTH), np.float32)), name="cache", requires_grad=False)

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.fc(x) * 1.0
        h[0] = h[1] * 2.0
        h[:, 0] = 0.5
        ops.assign(self.cache, ops.stop_gradient(h))
        ops.assign_add(self.seen, Tensor(1.0, ms.float32))
        h = ops.relu(h)
        h += x
        return ops.mse_loss(self.head(h) + self.cache * 0.1, y)


Batch = tuple[Tensor, Tensor]


def _images(rng: np.random.Generator) -> Batch:
    return Tensor(rng.normal(size=(4, 1, 8, 8)).astype(np.float32)), Tensor(rng.integers(0, 10, 4), ms.int32)


def _tokens(rng: np.random.Generator) -> Batch:
    ids = rng.integers(0, VOCAB, (2, 9))
    return Tensor(ids[:, :-1], ms.int32), Tensor(ids[:, 1:], ms.int32)


def vectors(rng: np.random.Generator) -> Batch:
    """Floats in, floats out."""
    x, y = rng.normal(size=(2, 4, WIDTH)).astype(np.float32)
    return Tensor(x), Tensor(y)


Case = tuple[Callable[[], nn.Cell], Callable[[np.random.Generator], Batch]]
CASES: dict[str, Case] = {
    "lenet": (LeNet, _images),
    "gpt": (Gpt, _tokens),
    "tied": (Tied, vectors),
    "lstm": (Lstm, _tokens),
    "recurrent": (Recurrent, _tokens),
    "bprop": (Bprop, vectors),
    "residual": (Residual, vectors),
    "inplace": (InPlace, vectors),
}


class Watch(Protocol):
    """What the training loop calls of a debugger."""

    def start(self, model: Any) -> None: ...
    def stop(self) -> None: ...
    def step(self) -> None: ...


Trace = dict[str, np.ndarray]


def fixed(seed: int = 5) -> None:
    """Every random number from the beginning."""
    random.seed(seed)
    ms.set_seed(seed)
    ms.manual_seed(seed)


def array(t: Tensor) -> np.ndarray:
    """A copy: `asnumpy` may be the tensor's own memory."""
    return t.asnumpy().copy()


def build(case: Case) -> nn.Cell:
    model = case[0]()
    model.set_train()
    return model


def train(case: Case, variant: str, watch: Watch | None = None, steps: int = 2) -> Trace:
    """Every loss, gradient and parameter of a short training run; `graph_...` is a variant in GRAPH_MODE."""
    if variant.startswith("graph_"):
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            return train(case, variant.removeprefix("graph_"), watch, steps)
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)
    fixed()
    model = build(case)
    if variant == "half":
        model.to_float(ms.float16)
    optimizer = nn.Adam(model.trainable_params(), 1e-2)
    rng = np.random.default_rng(3)
    step = _STEPS[variant](model, optimizer)
    trace: Trace = {}
    for i in range(steps):
        batches = [case[1](rng), case[1](rng)]
        if watch is not None:
            watch.start(model)
        for name, value in step(batches).items():
            trace[f"{i}.{name}"] = value
        if watch is not None:
            watch.stop()
            watch.step()
        for p in model.get_parameters():
            trace[f"{i}.{p.name}"] = array(p)
    return trace


Step = Callable[[list[Batch]], Trace]


def _result(loss: Any, grads: Any) -> Trace:
    return {"loss": array(loss), **{f"grad.{i}": array(g) for i, g in enumerate(grads)}}


def _value_and_grad(model: Callable[..., Any], optimizer: nn.Optimizer) -> Step:
    forward = ms.value_and_grad(model, None, optimizer.parameters)

    def step(batches: list[Batch]) -> Trace:
        loss, grads = forward(*batches[0])
        optimizer(grads)
        return _result(loss, grads)

    return step


def _jit(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    """PyNative takes the gradients of a jitted function that calls the model."""

    @ms.jit
    def call(*batch):  # type: ignore[no-untyped-def]
        return model(*batch)

    return _value_and_grad(call, optimizer)


def _grad_operation(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    def step(batches: list[Batch]) -> Trace:
        of = ops.GradOperation(get_by_list=True, sens_param=True)(model, optimizer.parameters)
        loss = model(*batches[0])
        grads = of(*batches[0], Tensor(2.0, ms.float32))
        optimizer(grads)
        return _result(loss, grads)

    return step


def _train_one_step(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    train_step = nn.TrainOneStepCell(model, optimizer)
    train_step.set_train()

    def step(batches: list[Batch]) -> Trace:
        return {"loss": array(train_step(*batches[0]))}

    return step


def _accumulate(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    forward = ms.value_and_grad(lambda *batch: model(*batch) * 0.5, None, optimizer.parameters)

    def step(batches: list[Batch]) -> Trace:
        loss, total = forward(*batches[0])
        for batch in batches[1:]:
            more, grads = forward(*batch)
            loss, total = loss + more, [a + b for a, b in zip(total, grads, strict=True)]
        total = ops.clip_by_global_norm(total, 1.0)
        optimizer(total)
        return _result(loss, total)

    return step


def _inputs(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    """Gradients of the input as well, where it is of floats; the model is given to a function."""

    def step(batches: list[Batch]) -> Trace:
        x, y = batches[0]
        if x.dtype in (ms.int32, ms.int64):
            return _value_and_grad(model, optimizer)(batches)
        loss, (of_x, grads) = ms.value_and_grad(model, 0, optimizer.parameters)(x, y)
        alone = ms.grad(model)(x, y)
        optimizer(grads)
        return {**_result(loss, grads), "of_x": array(of_x), "alone": array(alone)}

    return step


def _aux(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    """For a model that gives the loss and something beside it."""
    forward = ms.value_and_grad(model, None, optimizer.parameters, has_aux=True)

    def step(batches: list[Batch]) -> Trace:
        (loss, beside), grads = forward(*batches[0])
        optimizer(grads)
        return {**_result(loss, grads), "beside": array(beside)}

    return step


def _scaled(model: nn.Cell, optimizer: nn.Optimizer, scaler: Any) -> Step:
    """MindSpore's recipe for mixed precision; two updates a step."""

    def scaled(x, y):  # type: ignore[no-untyped-def]
        return scaler.scale(model(x, y))

    forward = ms.value_and_grad(scaled, None, optimizer.parameters)

    def step(batches: list[Batch]) -> Trace:
        trace: Trace = {}
        for i, batch in enumerate(batches):
            loss, grads = forward(*batch)
            loss, grads = scaler.unscale(loss), scaler.unscale(grads)
            finite = ms.amp.all_finite(grads)
            scaler.adjust(finite)
            if finite:
                optimizer(grads)
            trace |= {f"{name}.{i}": value for name, value in _result(loss, grads).items()}
            trace |= {f"finite.{i}": array(finite), f"scale.{i}": array(ops.ones(1) * scaler.scale_value)}
        return trace

    return step


def _export(model: nn.Cell, optimizer: nn.Optimizer) -> Step:
    """A model that is exported between two steps, and what the exported one gives."""
    train_step = _value_and_grad(model, optimizer)

    def step(batches: list[Batch]) -> Trace:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "model"
            ms.export(model, *batches[0], file_name=str(file), file_format="MINDIR")
            exported = nn.GraphCell(ms.load(f"{file}.mindir"))(*batches[1])
        return {**train_step(batches), "exported": array(exported)}

    return step


_STEPS: dict[str, Callable[[nn.Cell, nn.Optimizer], Step]] = {
    "value_and_grad": _value_and_grad,
    "jit": _jit,
    "grad_operation": _grad_operation,
    "train_one_step": _train_one_step,
    "accumulate": _accumulate,
    "inputs": _inputs,
    "half": _value_and_grad,
    "aux": _aux,
    "static_scaler": lambda model, optimizer: _scaled(model, optimizer, ms.amp.StaticLossScaler(8.0)),
    "dynamic_scaler": lambda model, optimizer: _scaled(model, optimizer, ms.amp.DynamicLossScaler(8.0, 2, 2)),
    "export": _export,
}


def differences(one: Trace, other: Trace) -> list[str]:
    """The names of what is not the same, bit for bit."""
    if one.keys() != other.keys():
        return sorted(one.keys() ^ other.keys())
    return [
        name
        for name in one
        if one[name].dtype != other[name].dtype
        or one[name].shape != other[name].shape
        or one[name].tobytes() != other[name].tobytes()
    ]


def finite(trace: Trace) -> bool:
    return all(bool(np.isfinite(value).all()) for value in trace.values())
