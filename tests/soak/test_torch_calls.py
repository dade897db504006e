"""PyTorch: a failing system call changes no bit of the run, and what it costs is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import check_dump, sweep

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_failing_calls(tmp_path: Path) -> None:
    assert sweep("torch_run.py", tmp_path, ("statistics", "tensor", "late"), check_dump) == []
