"""Supply the runs of the contract on task `watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def _array(t: Any) -> Any:
    return np.array(t.asnumpy(), np.float64)


def _norm(t: Any) -> float:
    return float(np.linalg.norm(_array(t).ravel()))


@pytest.fixture
def watched_run(pynative: None, request: pytest.FixtureRequest) -> Any:
    """Adam on a small net, by hand."""
    from mindspore import Tensor, nn, ops, set_seed, value_and_grad
    from probe_mindspore import PrecisionDebugger

    def run(dump: Path | None, steps: int, **keys: Any) -> Any:
        set_seed(0)
        random = np.random.default_rng(0)
        net = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 2))
        for p in net.trainable_params():
            p.set_data(Tensor(random.normal(size=p.shape).astype(np.float32)))
        optimizer = nn.Adam(net.trainable_params(), 1e-2)
        names = [name for name, _ in net.parameters_and_names()]
        grads_of = value_and_grad(lambda x: ops.square(net(x)).sum(), None, optimizer.parameters)
        debugger = (
            None if dump is None else PrecisionDebugger(dump_path=str(dump), **{"task": "watch", **keys})
        )
        if debugger:
            request.addfinalizer(debugger.close)
        seen = []
        for _ in range(steps):
            if debugger:
                debugger.start(net)
            _, grads = grads_of(Tensor(random.normal(size=(3, 4)).astype(np.float32)))
            grads = ops.clip_by_global_norm(grads, 0.5)
            row = {}
            before = [_array(p) for p in optimizer.parameters]
            for name, p, grad, m, v in zip(
                names, optimizer.parameters, grads, optimizer.moment1, optimizer.moment2, strict=True
            ):
                row["gradients", name], row["weights", name] = _norm(grad), _norm(p)
                row["moments", f"{name}.moment1"], row["moments", f"{name}.moment2"] = _norm(m), _norm(v)
            optimizer(grads)
            for name, p, old in zip(names, optimizer.parameters, before, strict=True):
                row["updates", name] = float(np.linalg.norm((_array(p) - old).ravel()))
            seen.append(row)
            if debugger:
                debugger.stop()
                debugger.step()
        if debugger:
            debugger.close()
        return [p.asnumpy().tobytes() for p in net.get_parameters()], seen

    return run


@pytest.fixture
def watched_loop() -> Path:
    return Path(__file__).parent / "watched_loop.py"
