"""The demo, made small: it runs, dumps two steps, and its table says what the dumps hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from dumping import records, report
from probe_torch.demo import main


def test_the_table_is_what_the_reports_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--steps", "5", "--layers", "1", "--width", "16"]) == 0
    out = capsys.readouterr().out
    for step in (2, 3):
        said = report(tmp_path / "dump", step)
        for kind in ("calls", "modules", "tensors"):
            (row,) = [line for line in out.splitlines() if line.strip().startswith(kind)]
            assert f"{said['counts']['seen'][kind]:,}" in row
        assert "Module.blocks.0.qkv.Linear.backward.0" in records(tmp_path / "dump", step)
    assert str(tmp_path / "dump") in out and "ratio" in out
    assert out.count("] step ") == 5, "a line of progress for each step"
    for title in ("skipped", "not looked at", "largest norms", "non-finite", "faults"):
        assert out.count(f"\n  {title}") == 2, title


def test_too_few_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--steps", "2"])
    assert "at least 5" in capsys.readouterr().err
