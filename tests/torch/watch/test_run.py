"""`probe run --task watch`: the loops that nobody changed, with the bits of the plain run and a row for each step."""

from __future__ import annotations

from pathlib import Path

import loops
import pytest
from launching import FORKS
from probe_format.watch import watch_files

LOOPS = Path(loops.__file__)


WATCHED = ["between", "accumulating", "scaled", "lbfgs", "gan", "in_backward", "sam", "compiled"]


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    """What each loop prints that nobody watches."""
    *together, alone = WATCHED  # which is compiled as what ran before makes it
    printed = [FORKS.run(str(LOOPS), names).stdout for names in (",".join(together), alone)]
    return dict(zip(WATCHED, "".join(printed).splitlines(keepends=True), strict=True))


@pytest.mark.parametrize("loop", WATCHED)
def test_a_loop_is_watched(plain: dict[str, str], loop: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    keys = ["--task", "watch", "--moments", "true", "--updates", "true", "--dump_path", str(dump)]
    watched = FORKS.run("-m", "probe_format", "run", *keys, str(LOOPS), loop, cwd=tmp_path)
    assert watched.stdout == plain[loop]
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
