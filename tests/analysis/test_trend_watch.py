"""`probe trend` of watch files: every step of a short run, groups of steps of a long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_analysis import trend
from probe_analysis.cli.trend import main
from probe_format.errors import FormatError
from watched import watched


def test_every_step_of_every_rank(tmp_path: Path) -> None:
    found = trend(watched(tmp_path, 6))
    assert (found.steps, found.ranks) == ((0, 1, 2, 3, 4, 5), (0, 1))
    assert [series.name for series in found.series] == ["a.weight", "a.bias", "b.weight"]
    assert found.series[0].change == 6.0
    assert [found.series[2].of_step(step) for step in (0, 1)] == [3.0, None]
    assert trend(tmp_path, "weights", statistic="rms").series[0].of_step(0) == 2.5
    (found,) = [each for each in trend(tmp_path, rank=1, step=3).series if each.name == "a.weight"]
    assert found.of_step(3) == 4.0


def test_a_nan_is_named_with_its_step_and_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(watched(tmp_path, 9, nan_at=7, closed=False))]) == 0
    said = capsys.readouterr().out
    assert said.startswith("gradients, Norm: a.weight is not finite from step 7 on of rank 1.")
    assert "note: watch/rank0: torn, up to step 8" in said


def test_a_long_run_is_shown_in_groups(tmp_path: Path) -> None:
    found = trend(watched(tmp_path, 1201, ranks=1))
    assert len(found.steps) == 401
    assert found.series[0].of_step(3) == 6.0, "the largest of steps 3 to 5"
    assert "of each 3 steps the largest value is shown, under the first of them" in found.notes


def test_what_was_not_watched(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nothing of moments in watch/rank0.*moments: true"):
        trend(watched(tmp_path, 2), "moments")
