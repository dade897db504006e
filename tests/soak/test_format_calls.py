"""The writer alone: a failing system call raises OSError, and costs nothing that was written before."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import check_dump, sweep

pytestmark = pytest.mark.slow


def test_failing_calls(tmp_path: Path) -> None:
    assert sweep("format_run.py", tmp_path, ("early", "late"), check_dump) == []
