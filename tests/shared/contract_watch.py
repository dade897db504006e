"""Task `watch`: the bits are those of the plain run, and the rows have what another way of looking finds.

A framework's `train` has no optimizer, so its folder supplies ``watched_run``: it takes a dump path (None for a plain
run), the number of steps and keys, and returns the bits of the weights, and the norms of each step by (kind, name).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from framework import Framework
from probe_format.errors import ConfigError
from probe_format.watch import WatchFile, watch_files

ALL = {"moments": True, "updates": True}


def rows_of(file: WatchFile) -> list[dict[tuple[str, str], float | None]]:
    """Each row, by (kind, name)."""
    return [{(c.kind, c.name): row.norm(i) for i, c in enumerate(file.columns)} for row in file.rows]


@pytest.mark.parametrize("keys", [{}, ALL], ids=["few", "all"])
def test_numbers_are_the_truth_and_bits_those_of_the_plain_run(
    watched_run: Any, keys: Any, tmp_path: Path
) -> None:
    plain, _ = watched_run(None, 4)
    watched, truth = watched_run(tmp_path, 4, **keys)
    assert watched == plain
    (file,) = watch_files(tmp_path)
    assert (file.state, file.faults, file.damage) == ("complete", [], [])
    assert [row.step for row in file.rows] == [0, 1, 2, 3]
    kinds = {"gradients", "weights"} | ({"moments", "updates"} if keys else set())
    assert {column.kind for column in file.columns} == kinds
    for found, seen in zip(rows_of(file), truth, strict=True):
        there = {name: norm for name, norm in found.items() if norm is not None}
        wanted = {name: norm for name, norm in seen.items() if name[0] in kinds}
        assert there == pytest.approx(wanted, rel=1e-4, abs=1e-12)
    assert os.listdir(tmp_path) == ["watch"], "no folder for a step"


def test_chosen_steps(watched_run: Any, tmp_path: Path) -> None:
    _, truth = watched_run(tmp_path, 7, step=["0-6/3"], updates=True)
    (file,) = watch_files(tmp_path)
    assert [row.step for row in file.rows] == [0, 3, 6]
    for found, step in zip(rows_of(file), (0, 3, 6), strict=True):
        updates = {name: norm for name, norm in truth[step].items() if name[0] == "updates"}
        assert {name: norm for name, norm in found.items() if name[0] == "updates"} == pytest.approx(
            updates, rel=1e-4
        )


def test_an_earlier_file_is_not_written_over(watched_run: Any, tmp_path: Path) -> None:
    watched_run(tmp_path, 2)
    before = (tmp_path / "watch" / "rank.rows").read_bytes()
    with pytest.raises(ConfigError, match="already holds a dump"):
        watched_run(tmp_path, 2)
    assert (tmp_path / "watch" / "rank.rows").read_bytes() == before
    watched_run(tmp_path, 3, overwrite=True)
    (file,) = watch_files(tmp_path)
    assert len(file.rows) == 3


def test_what_has_no_effect_is_said(framework: Framework, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning) as said:
        framework.debugger(
            dump_path=tmp_path, task="watch", level="mix", summary_mode="md5", views=True
        ).close()
    words = [str(each.message) for each in said]
    for key in ("level", "summary_mode", "views"):
        assert [text for text in words if f"argument {key}: task 'watch'" in text]
    with pytest.warns(RuntimeWarning, match="argument moments: is for task 'watch'"):
        framework.debugger(dump_path=tmp_path, task="statistics", moments=True).close()


def test_after_a_kill_every_row_is_there(watched_loop: Path, tmp_path: Path) -> None:
    """Kill runs (3 of them, or PROBE_KILLS; 50 with PROBE_SOAK) at random instants: every row that ended is there."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    kills = 50 if os.environ.get("PROBE_SOAK") else int(os.environ.get("PROBE_KILLS", 3))
    for kill in range(kills):
        dump = tmp_path / str(kill)
        run = subprocess.Popen(
            [sys.executable, str(watched_loop), str(dump)], stdout=subprocess.PIPE, text=True
        )
        assert run.stdout is not None
        told = chance.randrange(1, 6)
        for _ in range(told):
            assert run.stdout.readline()
        time.sleep(chance.random() * 0.02)
        os.kill(run.pid, signal.SIGKILL)
        said = told + len(run.stdout.read().split())
        run.wait()
        (file,) = watch_files(dump)
        steps = [row.step for row in file.rows]
        where = f"kill {kill} of seed {seed}"
        assert steps == [*range(len(steps))] and len(steps) >= said, where
        assert (file.state, file.damage) == ("torn", []), where
