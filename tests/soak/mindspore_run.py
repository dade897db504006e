"""Two steps of a small network of MindSpore whose system calls fail (forked_runs.py)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
from forked_runs import Refused, serve
from mindspore import Tensor, nn
from probe_format.errors import ConfigError
from probe_mindspore import PrecisionDebugger

MODES = {"statistics": {}, "tensor": {"task": "tensor"}}


def begin(folder: Path) -> None:
    """Find all functions once, as a first start() does: most of a run's time."""
    with PrecisionDebugger(dump_path=str(folder / "begin"), level="mix") as debugger:
        debugger.start(nn.ReLU())
        debugger.stop()


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Compute two steps; return the bits of losses and gradients."""
    ms.set_seed(0)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.GELU(), nn.Dense(4, 2))
    for number, parameter in enumerate(net.trainable_params()):
        values = np.linspace(-1, 1, parameter.size, dtype=np.float32).reshape(parameter.shape)
        parameter.set_data(Tensor(values + number))
    found = []
    try:
        debugger = PrecisionDebugger(dump_path=str(folder / "dump"), level="mix", **MODES[mode])
    except ConfigError as error:
        raise Refused(str(error)) from None
    for step in range(2):
        debugger.start(net)

        def forward(x: Tensor, step: int = step) -> Tensor:
            for number, cell in enumerate(net):
                x = cell(x)
                say(f"{step} Cell.{number}.{type(cell).__name__}.forward.0")
            return x.sum()

        x = Tensor(np.ones((2, 3), np.float32) + step)
        loss, gradients = ms.value_and_grad(forward, None, net.trainable_params())(x)
        debugger.stop()
        debugger.step()
        say(f"{step} whole")
        found += [loss, *gradients]
    debugger.close()
    return b"".join(each.asnumpy().tobytes() for each in found)


if __name__ == "__main__":
    # No run in the parent: what MindSpore starts for its first operator does not outlive a fork.
    with tempfile.TemporaryDirectory() as folder:
        begin(Path(folder))
    serve(run)
