"""Results as pandas frames hold what the results hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import probe_analysis
import pytest
from probe_format.errors import UsageError
from rank_dumps import tensor, write

WEIGHT = tensor(dtype="torch.float16")


def dump(folder: Path, odd: float = 1.0) -> Path:
    """Write two steps of two ranks; the last has weights of its own."""
    for step in range(2):
        for rank in range(2):
            norm = odd if (step, rank) == (1, 1) else 2.0
            record: dict[str, Any] = {
                "input_args": [],
                "input_kwargs": {},
                "output": [WEIGHT | {"Max": "Infinity"}],
            }
            record["parameters"] = {"weight": WEIGHT | {"Norm": norm}}
            write(folder, rank, {"Module.a.Linear.forward.0": record}, step, level="L0")
    return folder


def test_frames_have_a_row_for_each_finding(tmp_path: Path) -> None:
    one, two = dump(tmp_path / "one"), dump(tmp_path / "two", odd=3.0)
    trend = probe_analysis.trend(one, "weights").frame()
    assert trend[["step", "rank", "value"]].values.tolist() == [
        [0, 0, 2.0],
        [0, 1, 2.0],
        [1, 0, 2.0],
        [1, 1, 1.0],
    ]
    ranks = probe_analysis.ranks(one).frame()
    assert ranks[["step", "slot", "reason"]].values.tolist() == [["step1", "parameters.weight", "weight"]]
    assert ranks["ranks"].tolist() == [[[0], [1]]]
    diff = probe_analysis.diff(one, two).frame()
    assert diff["cause"].isna().tolist() == [True, True, True, False]
    assert diff["cause"].tolist()[3] == "parameters"
    assert diff["results"].tolist() == [0.0] * 4
    nan = probe_analysis.first_non_finite(one).frame()
    assert nan["what"].tolist() == ["first in forward"]
    assert nan["call"].tolist() == ["Module.a.Linear.forward.0"]
    assert list(probe_analysis.ranks(one, groups=[[0], [1]]).frame().columns) == list(ranks.columns)


def test_without_pandas_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"probe-analysis\[pandas\]"):
        probe_analysis.ranks(dump(tmp_path)).frame()
