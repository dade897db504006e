"""`probe run --task watch`: the loops that nobody changed, with the bits of the plain run and a row for each step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import loops
import pytest
from loop_client import Server
from probe_format.watch import watch_files

LOOPS = Path(loops.__file__)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("runs"))
    yield server
    server.close()


@pytest.mark.parametrize(
    "loop", ["between", "accumulating", "scaled", "lbfgs", "gan", "in_backward", "compiled", "sam"]
)
def test_a_loop_is_watched(server: Server, loop: str) -> None:
    dump = server.folder / f"{loop}-dump"
    plain = server.run(f"{loop}-plain", str(LOOPS), loop)
    keys = ["--task", "watch", "--moments", "true", "--updates", "true", "--dump_path", str(dump)]
    assert server.run(f"{loop}-watched", "run", *keys, str(LOOPS), loop)[:2] == plain[:2]
    (file,) = watch_files(dump)
    assert (file.state, file.faults, file.damage) == ("complete", [], [])
    steps = [row.step for row in file.rows]
    assert len(steps) >= 2 and steps == [*range(len(steps))]
    updated = [file.total(row, "gradients") is not None for row in file.rows]
    assert updated.count(False) == (loop == "scaled"), "a scaler skips one"
    assert all(
        (file.total(row, "updates") or 0.0) > 0.0
        for row, is_one in zip(file.rows, updated, strict=True)
        if is_one
    )
    assert file.header["found"]["step_ends"] == "update"
