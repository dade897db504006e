"""`probe export` of watch files, read by what reads such files: pyarrow and TensorBoard."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from probe_analysis import export
from probe_analysis.cli.export import main
from probe_format.errors import FormatError
from watched import watched


def test_a_row_for_each_tensor_of_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    assert main([str(watched(tmp_path / "dump", 4, nan_at=2)), "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert (
        "It has 44 numbers of task watch." in said and "/watch/**/*.parquet' WHERE NOT isfinite(norm)" in said
    )
    rows = pq.read_table(tmp_path / "out" / "watch").to_pylist()
    assert len(rows) == 44
    assert {int(row["rank"]) for row in rows} == {0, 1}
    (bad,) = [row for row in rows if not math.isfinite(row["norm"])]
    assert (bad["step"], bad["kind"], bad["module"], bad["tensor"]) == (2, "gradients", "a", "weight")
    assert (bad["nan_count"], bad["inf_count"], bad["elements"]) == (3, 0, 4)


def test_a_curve_for_each_tensor(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = export(watched(tmp_path / "dump", 4, nan_at=2), tmp_path / "out", form="tensorboard")
    assert found.watched == 44
    read = EventAccumulator(str(tmp_path / "out" / "watch" / "rank1"))
    read.Reload()
    assert [event.step for event in read.Scalars("gradients/b.weight")] == [0, 2]
    assert [event.value for event in read.Scalars("not_finite/gradients/a.weight")] == [3.0]
    assert [event.value for event in read.Scalars("weights/a.bias")] == [6.0] * 4


def test_one_step_of_one_rank(tmp_path: Path) -> None:
    assert export(watched(tmp_path / "dump", 4), tmp_path / "out", step=1, rank=0).watched == 5
    with pytest.raises(FormatError):
        export(tmp_path / "dump", tmp_path / "none", step=9)
