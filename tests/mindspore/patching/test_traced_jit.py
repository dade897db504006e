"""Functions under @jit(capture_mode="trace"): the report says of the Cells that they hold where those ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mindspore_launching import FORKS

RUN = """
import sys
import mindspore as ms, numpy as np
from mindspore import Tensor, nn
from probe_mindspore import PrecisionDebugger

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.called, self.inner, self.never = nn.Dense(4, 4), nn.SequentialCell(nn.Dense(4, 4)), nn.Dense(4, 4)

net = Net()
alone = Net()
def helper(x, inner=net.inner):
    return inner(x)
held = [net.called]
@ms.jit(capture_mode="trace")
def function(x):
    return helper(held[0](x)) + alone.never(x)
def run():
    grads = ms.grad(lambda x: function(x).sum(), 0, net.trainable_params()[:2])(Tensor(np.ones((2, 4), np.float32)))
    return [g.asnumpy().tobytes() for g in (grads[0], *grads[1])]
level, first = sys.argv[1:]
plain = run() if first == "before" else None
with PrecisionDebugger(dump_path="dump", task="statistics", level=level) as debugger:
    for _ in range(2):
        debugger.start(net)
        seen = run()
        debugger.stop()
        debugger.step()
        assert plain in (None, seen)
assert run() == seen
"""


@pytest.mark.parametrize("first", ["before", "started"])
@pytest.mark.parametrize("level", [pytest.param("L0", marks=pytest.mark.once), "mix"])
def test_cells_of_a_traced_function_are_told_as_inside_its_graph(
    tmp_path: Path, level: str, first: str
) -> None:
    # In a process of its own: MindSpore's tracing fails where a frame has no source, as pytest's first ones.
    (tmp_path / "run.py").write_text(RUN)
    FORKS.run("run.py", level, first, cwd=tmp_path)
    for step in (0, 1):
        folder = tmp_path / "dump" / f"step{step}" / "rank"
        told = {n["what"]: n["why"] for n in json.loads((folder / "report.json").read_text())["not_seen"]}
        for name in ("Cell.called.Dense", "Cell.inner.0.Dense"):
            assert told[name].startswith("inside a compiled graph"), told
        assert told["Cell.never.Dense"] == "not called in this step"
        records = json.loads((folder / "dump.json").read_text())["data"]
        assert not [name for name in records if name.startswith("Cell.") and ".forward." in name]
