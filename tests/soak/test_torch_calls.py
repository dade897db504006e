"""PyTorch: a failing system call changes no bit of the run, and what it costs is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from failing_calls import check_dump, chosen, ran, server_of

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_failing_calls(tmp_path: Path) -> None:
    with server_of("torch_run.py", tmp_path) as server:
        whole = {
            mode: ran(server, tmp_path / mode, mode) for mode in ("statistics", "tensor", "late")
        }
        wrong = []
        for number, (mode, fault, nth) in enumerate(chosen(whole, 30, seed=int(os.environ.get('SEED','19')))):
            run = ran(server, tmp_path / str(number), mode, fault, nth)
            wrong += [
                f"{mode}, {fault.name} at {nth} ({run.hit.replace(str(run.folder), '')}): {each}"
                for each in check_dump(whole[mode], run, fault)
            ]
    assert wrong == []
