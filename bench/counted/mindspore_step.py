"""Count the Python-level calls of a dumped step of MindSpore: the twin of `torch_step.py`, which tells the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from counting import BATCH, LAYERS, WIDTH, config_file, count, run
from mindspore import Tensor, nn


class Tower(nn.Cell):
    """Dense, ReLU, Dense, ReLU, ..."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return Tensor(rng.uniform(low, high, shape).astype(np.float32))

        # On an all-positive input the layer is close to a mean, which neither grows nor dies, nor does its gradient.
        self.denses = nn.CellList([
            nn.Dense(WIDTH, WIDTH, uniform(0.5 / WIDTH, 1.5 / WIDTH, WIDTH, WIDTH), uniform(0.0, 0.01, WIDTH))
            for _ in range(LAYERS)
        ])  # fmt: skip
        self.relus = nn.CellList([nn.ReLU() for _ in range(LAYERS)])

    def construct(self, x: Any) -> Any:
        for dense, relu in zip(self.denses, self.relus, strict=True):
            x = relu(dense(x))
        return x


def counted(tool: str, level: str, task: str, folder: Path, top: int) -> dict[str, Any]:
    """Return the counts of one tool's dump."""
    ms.set_context(runtime_num_threads=1)
    model = Tower()
    model.set_train()
    x = Tensor(np.random.default_rng(1).uniform(size=(BATCH, WIDTH)).astype(np.float32))
    config = config_file(tool, level, task, folder)
    if tool == "msprobe":
        from mindspore import mint, ops
        from msprobe.mindspore import PrecisionDebugger  # type: ignore[import-not-found]

        mint.norm = lambda x, *args, **kwargs: ops.norm(x)  # a CPU has no kernel for the norm that it takes
    else:
        from probe_mindspore import PrecisionDebugger
    probe = PrecisionDebugger(config_path=config)
    forward = ms.value_and_grad(lambda given: model(given).sum(), None, model.trainable_params())
    found = count(probe, model, lambda: forward(x), folder, top)
    _, gradients = forward(x)
    arrays = [g.asnumpy() for g in gradients]
    assert all(abs(a).max() > 1e-6 and np.isfinite(a).all() for a in arrays), "a gradient vanished"
    return found


if __name__ == "__main__":
    run(counted, *sys.argv[1:])
