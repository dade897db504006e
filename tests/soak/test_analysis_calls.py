"""Commands of probe-analysis: what a failing system call leaves is whole, and the message names file and reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import check_command, sweep

pytestmark = pytest.mark.slow


def test_failing_calls(tmp_path: Path) -> None:
    assert (
        sweep("analysis_run.py", tmp_path, ("report", "diff", "export", "curves", "ranks"), check_command)
        == []
    )
