"""A dump by msprobe beside one by Probe: what the two write in another form is no difference between the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import probe_analysis
import pytest
from rank_dumps import tensor, write

NAME = "Functional.linear.0"
NOTE = "msprobe writes them in another order"


def of(shape: list[int], norm: float) -> dict[str, Any]:
    return tensor(shape=shape, Norm=norm, requires_grad=True)


def dump(folder: Path, passed_on: list[dict[str, Any]], *, probe: bool, given: float = 1.0) -> Path:
    forward = {"input_args": [of([4, 8], 2.0)], "input_kwargs": {}, "output": [of([4, 2], 3.0)]}
    backward = {"input": [of([4, 2], given)], "output": passed_on}
    header: dict[str, Any] = {"level": "L1", "framework": "pytorch", "dump_data_dir": None}
    if probe:
        header |= {"format_version": "1.0", "tool": "probe-torch 0.1.0", "rank": None, "step": 0}
    return write(folder, None, {f"{NAME}.forward": forward, f"{NAME}.backward": backward}, **header)


OURS = [of([4, 8], 5.0), of([2, 8], 6.0), of([2], 7.0)]
THEIRS = [of([2], 7.0), of([4, 8], 5.0), of([8, 2], 6.0)]  # bias, input, transposed weight


def test_another_form_is_no_difference(tmp_path: Path) -> None:
    found = probe_analysis.diff(
        dump(tmp_path / "a", THEIRS, probe=False), dump(tmp_path / "b", OURS, probe=True)
    )
    assert found.verdict.state == "same", found.verdict.sentence
    (note,) = found.runs[0].notes
    assert NOTE in note


def test_what_a_function_gets_is_compared(tmp_path: Path) -> None:
    found = probe_analysis.diff(
        dump(tmp_path / "a", THEIRS, probe=False), dump(tmp_path / "b", OURS, probe=True, given=1.5)
    )
    assert found.verdict.state == "different"
    assert found.verdict.call is not None and found.verdict.call.name == f"{NAME}.backward"


@pytest.mark.parametrize("probe", [True, False])
def test_two_dumps_of_one_tool_are_compared_whole(tmp_path: Path, probe: bool) -> None:
    a, b = dump(tmp_path / "a", THEIRS, probe=probe), dump(tmp_path / "b", OURS, probe=probe)
    found = probe_analysis.diff(a, b)
    assert found.verdict.state == "different"
    assert found.runs[0].notes == ()
