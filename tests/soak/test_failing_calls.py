"""A failing system call changes no bit of a run, costs nothing that was written before, and what it costs is told.

What it leaves of a command's files is whole, and the message names file and reason. MindSpore: test_mindspore_calls.py.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from failing_calls import Check, check_command, check_dump, sweep

pytestmark = pytest.mark.slow
no_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


@pytest.mark.parametrize(
    ("program", "modes", "check"),
    [
        ("analysis_run.py", ("report", "diff", "export", "curves", "ranks"), check_command),
        ("format_run.py", ("early", "late"), check_dump),
        ("kernel_run.py", ("export", "convert", "statistics", "check", "control"), check_command),
        ("save_run.py", ("statistics", "tensor"), check_dump),
        pytest.param("torch_run.py", ("statistics", "tensor", "late"), check_dump, marks=no_torch),
    ],
)
def test_failing_calls(program: str, modes: tuple[str, ...], check: Check, tmp_path: Path) -> None:
    assert sweep(program, tmp_path, modes, check) == []
