"""One process that trains a small MindSpore network with one tool (none, probe or msprobe), a step at a time.

`python -m bench.mindspore_worker TOOL NETWORK LEVEL TASK SUMMARY FOLDER [graph]` makes a step for every line it
reads, and answers with a line of JSON: wall and CPU seconds of the step, with those of processes that ended in it,
start to step() included. The line "rest" is a step that is not dumped. graph: the whole step is one compiled graph.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor, nn, ops

    rng = np.random.default_rng(0)
    if name == "gpt":
        from probe_mindspore.demo_model import Gpt, batches

        return Gpt(layers=2, width=128), next(batches(size=4))

    class Cnn(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.c2, self.c3 = (
                nn.Conv2d(3, 16, 3),
                nn.Conv2d(16, 32, 3, stride=2),
                nn.Conv2d(32, 64, 3, stride=2),
            )
            self.b1, self.b2, self.b3 = nn.BatchNorm2d(16), nn.BatchNorm2d(32), nn.BatchNorm2d(64)
            self.relu, self.flat, self.head = nn.ReLU(), nn.Flatten(), nn.Dense(64 * 64, 10)

        def construct(self, x: Any, y: Any) -> Any:
            x = self.relu(self.b1(self.c1(x)))
            x = self.relu(self.b2(self.c2(x)))
            x = self.relu(self.b3(self.c3(x)))
            return ops.cross_entropy(self.head(self.flat(x)), y)

    images = Tensor(rng.normal(size=(16, 3, 32, 32)).astype(np.float32))
    return Cnn(), (images, Tensor(rng.integers(0, 10, 16), ms.int32))


def debugger(tool: str, level: str, task: str, summary: str, folder: Path) -> Any:
    """The tool's PrecisionDebugger; None for "none"."""
    document: dict[str, Any] = {"task": task, "level": level, "dump_path": str(folder / "dump")}
    document |= {"rank": [], "step": [], task: {"scope": [], "list": [], "summary_mode": summary}}
    config = folder / "config.json"
    config.write_text(json.dumps(document))
    if tool == "msprobe":
        from mindspore import mint, ops

        # msprobe dies on a CPU for want of the LinalgVectorNorm kernel.
        mint.norm = lambda x, *args, **kwargs: ops.norm(x)
        from msprobe.mindspore import PrecisionDebugger as Theirs

        return Theirs(config_path=str(config))
    if tool == "probe":
        from probe_mindspore import PrecisionDebugger as Ours

        return Ours(str(config))
    return None


def trained(model: Any, graph: bool) -> tuple[Any, Any]:
    """Return what makes one step of training and returns the loss, and a weight that it changes."""
    import mindspore as ms
    from mindspore import nn

    optimizer = nn.SGD(model.trainable_params(), 0.01)
    weight = optimizer.parameters[0]
    if graph:
        ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
        whole = nn.TrainOneStepCell(model, optimizer)
        whole.set_train()
        return whole, weight
    forward = ms.value_and_grad(lambda *b: model(*b), None, optimizer.parameters)

    def step(*batch: Any) -> Any:
        loss, grads = forward(*batch)
        optimizer(grads)
        return loss

    return step, weight


def main(tool: str, name: str, level: str, task: str, summary: str, place: str, mode: str = "") -> None:
    """Take the real standard output for the answers; what the tools print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import mindspore as ms

    ms.set_context(runtime_num_threads=1)
    ms.set_seed(1)
    folder = Path(place)
    watch = debugger(tool, level, task, summary, folder)
    model, batch = network(name)
    model.set_train()
    step, weight = trained(model, mode == "graph")
    for order in sys.stdin:
        begin = cpu(), time.perf_counter()
        dumped = watch is not None and order != "rest\n"
        if dumped:
            watch.start(model)
        step(*batch).asnumpy(), weight.asnumpy()
        if dumped:
            watch.stop()
            watch.step()
        took = {"cpu": cpu() - begin[0], "wall": time.perf_counter() - begin[1]}
        took["records"] = sum(path.stat().st_size for path in folder.rglob("dump.json"))
        shutil.rmtree(folder / "dump", ignore_errors=True)
        print(json.dumps(took), file=answers, flush=True)


def cpu() -> float:
    """Return the CPU seconds of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main(*sys.argv[1:])
