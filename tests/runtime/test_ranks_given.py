"""`start(rank_id=3)` at level L2, where the framework's dumper names the folders: the key `rank` goes by it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from probe_format.errors import UsageError
from probe_runtime.config import resolve
from probe_runtime.session import KernelSession


def test_a_rank_that_the_script_gives_is_the_rank(tmp_path: Path) -> None:
    started: list[int] = []
    kernels = SimpleNamespace(prepare=int, start=started.append, stop=bool, step=bool, close=bool)
    session = KernelSession(
        resolve({"level": "L2", "rank": [3], "dump_path": str(tmp_path)}), kernels, lambda: None
    )
    for given in (None, 3, None, 4):
        session.start(None, None, given)
        session.stop()
        session.step()
    assert started == [1, 2]
    with pytest.raises(UsageError, match="rank_id must be a whole number"):
        session.start(None, None, -1)
