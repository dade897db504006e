"""`probe watch`: a running job, ranks that stop, what is not finite, the last trigger."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from probe_analysis.cli.watch import main
from probe_analysis.live.job import Job
from watched import watched


def test_once_of_a_run_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(watched(tmp_path, 5)), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 4 of 2 ranks, ")
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["all", "norm"],
        ["gradients", "6.16441"],
        ["weights", "10.4881"],
    ]
    assert lines[-1] == "the run has ended"


def test_a_rank_that_stopped_writing_and_what_is_not_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(watched(tmp_path, 9, nan_at=7, closed=False))
    assert [rank.state for rank in job.look().ranks] == ["writes", "writes"]
    state = job.look(time.time() + 3600)
    assert [rank.state for rank in state.ranks] == ["stopped", "stopped"]
    assert state.bad == ("watch/rank1, step 7: gradients of a.weight",)
    assert not state.is_well
    assert main([str(tmp_path), "--once"]) == 1
    assert "not finite: watch/rank1, step 7: gradients of a.weight" in capsys.readouterr().out


def test_the_last_trigger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched(tmp_path, 3)
    for step, why in ((1, "earlier"), (2, "loss is 7 times its median")):
        folder = tmp_path / f"step{step}" / "rank0"
        folder.mkdir(parents=True)
        triggers = [{"when": "spike(loss) > 5", "why": why, "rank": 0}]
        (folder / "report.json").write_text(json.dumps({"triggers": triggers}))
    assert main([str(tmp_path), "--once"]) == 0
    assert "last trigger: step 2: spike(loss) > 5: loss is 7 times its median" in capsys.readouterr().out


def test_it_is_shown_until_the_run_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    assert main([str(watched(tmp_path, 3))]) == 0
    assert "the run has ended" in capsys.readouterr().out


def test_without_rich_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.live", None)
    assert main([str(watched(tmp_path, 3))]) == 2
    assert "pip install 'probe-analysis[watch]'" in capsys.readouterr().err
    assert main([str(tmp_path), "--once"]) == 0


def test_what_is_not_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "has no watch files" in capsys.readouterr().err
