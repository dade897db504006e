"""Commands of probe-kernel: what a failing system call leaves is whole, and the message names file and reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import check_command, sweep

pytestmark = pytest.mark.slow


def test_failing_calls(tmp_path: Path) -> None:
    modes = ("export", "convert", "statistics", "check", "control")
    assert sweep("kernel_run.py", tmp_path, modes, check_command) == []
