"""`probe plan` finds the package that plans for the net that a function returns."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from probe_runtime.planning.command import main

MODULE = """
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

def small():
    return nn.SequentialCell(nn.Dense(4, 4)), Tensor(np.ones((2, 4), np.float32))

def other():
    return dict(), ()
"""


@pytest.mark.usefixtures("pynative")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["small"], 0, "One step of one rank at level L0, task tensor, writes "),
        (["other"], 2, "No package that is installed here plans for a dict"),
        (["small", "--meta"], 2, "--meta is for torch"),
    ],
)
def test_a_plan(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *more = words
    (tmp_path / "planned_cells.py").write_text(MODULE)
    config = {"task": "tensor", "level": "L0", "dump_path": str(tmp_path / "dump")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "planned_cells", raising=False)
    assert main([f"planned_cells:{name}", "--config", "config.json", *more]) == code
    out = capsys.readouterr()
    assert said in out.out + out.err
    assert not (tmp_path / "dump").exists()
