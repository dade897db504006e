"""Task `watch`: the bits are those of the plain run, and the rows have what another way of looking finds.

A framework's `train` has no optimizer, so its folder supplies ``watched_run``: it takes a dump path (None for a plain
run), the number of steps and keys, and returns the bits of the weights, and the norms of each step by (kind, name).
"""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from contract_keep import steps_of
from documents import strict
from framework import Framework
from probe_analysis.live.job import Job
from probe_format.cli.main import main as probe
from probe_format.errors import ConfigError
from probe_format.read.verify import verify
from probe_format.watch import WatchFile, watch_files
from probe_runtime.watch import WatchedRow
from signalled import WAYS, Late, rings_in

ALL = {"moments": True, "updates": True}


def rows_of(file: WatchFile) -> list[dict[tuple[str, str], float | None]]:
    """Each row, by (kind, name)."""
    return [{(c.kind, c.name): row.norm(i) for i, c in enumerate(file.columns)} for row in file.rows]


@pytest.mark.parametrize("way", WAYS)
def test_a_time_out_that_comes_in_a_look_reaches_the_run(tmp_path: Path, watched_run: Any, way: str) -> None:
    with rings_in(WatchedRow, "put", way) as times, pytest.raises(Late):
        watched_run(tmp_path, 2)
    assert times == [1]


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


def test_outputs_are_seen_again_after_somebody_kept_the_call_of_a_module(
    framework: Framework, tmp_path: Path
) -> None:
    """What is kept is given back, and the search for it must not change what Probe itself holds."""
    kept = []
    net = framework.sequence(framework.layer())
    for i in range(2):
        with framework.debugger(dump_path=tmp_path / str(i), task="watch", list=["0."]) as debugger:
            debugger.start(net)
            kept.append(framework.module.__call__)
            framework.train(net, framework.ones(2, 2))
            debugger.stop()
            debugger.step()
        (file,) = watch_files(tmp_path / str(i))
        assert "activations" in {column.kind for column in file.columns}
    assert kept == [framework.module.__call__] * 2


def test_a_bad_row_has_the_next_steps_dumped_in_detail(watched_run: Any, tmp_path: Path) -> None:
    """They are as without a watch, their rows as without a dump, and the bits those of the plain run."""
    plain, truth = watched_run(None, 4)
    asked = {"when": ["norm(parameters_grad) > 0.01"], "then": {"steps": 2}}
    with pytest.warns(
        RuntimeWarning, match="step 0 meets 'norm.* Dumped next, at level mix, task tensor"
    ) as said:
        watched, _ = watched_run(tmp_path / "watched", 4, list=["0."], **ALL, **asked)
    assert len([each for each in said if "meets" in str(each.message)]) == 1
    watched_run(tmp_path / "dumped", 4, task="tensor", level="mix", step=[1, 2])
    assert watched == plain
    assert steps_of(tmp_path / "watched") == [1, 2]
    assert {verdict.state for verdict in verify(tmp_path / "watched")} == {"complete"}
    for step in (1, 2):
        dumped, other = (
            strict(tmp_path / folder / f"step{step}" / "rank" / "dump.json")
            for folder in ("watched", "dumped")
        )
        assert [*dumped["data"]] == [*other["data"]]
        assert (dumped["level"], dumped["task"]) == ("mix", "tensor")
    (file,) = watch_files(tmp_path / "watched")
    assert (file.state, file.faults) == ("complete", [])
    for found, seen in zip(rows_of(file), truth, strict=True):
        assert found.pop(("activations", "0.output.0"))
        there = {name: norm for name, norm in found.items() if norm is not None}
        assert there == pytest.approx(seen, rel=1e-4, abs=1e-12)
    ((step, when, why),) = file.triggers
    assert (step, when) == (0, asked["when"][0]) and why.startswith("the norm of 4 gradients is ")
    assert Job(tmp_path / "watched").look().trigger == f"step 0: {when}: {why}"


def test_a_spike_of_what_is_in_the_rows(watched_run: Any, tmp_path: Path) -> None:
    with pytest.warns(
        RuntimeWarning, match=r"step 10 meets 'spike\(weights\) > 0.5': weights is .* running median"
    ):
        watched_run(tmp_path, 13, when=["spike(weights) > 0.5"], then={"level": "L0", "task": "statistics"})
    assert steps_of(tmp_path) == [11]


@pytest.mark.parametrize(("value", "dumped"), [("inf", []), ("nan", [2])])
def test_outputs_that_are_not_finite_and_masks(
    framework: Framework, tmp_path: Path, value: str, dumped: list[int]
) -> None:
    def compute(net: Any, x: Any) -> Any:
        return net.layer(x)

    net = framework.module_of("Net", compute)
    net.layer = framework.module_of("Mask", lambda mask, x: x)
    keys = {"task": "watch", "list": ["layer"], "when": ["non_finite"]}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with framework.debugger(dump_path=tmp_path, **keys) as debugger:
            for number in (1.0, float(value), 1.0):
                debugger.start(net)
                net(framework.ones(2, 2) * number)
                debugger.stop()
                debugger.step()
    told = [str(each.message) for each in said if "meets" in str(each.message)]
    wanted = "activations of layer.output.0: 4 NaN and 0 infinite of 4 values"
    assert [wanted in text for text in told] == [True] * len(dumped)
    assert steps_of(tmp_path) == dumped


@pytest.mark.parametrize("part", ["backward", "forward"])
def test_what_rows_do_not_have_is_refused(framework: Framework, tmp_path: Path, part: str) -> None:
    with pytest.raises(ConfigError, match=f"{part}.*task 'watch'"):
        framework.debugger(dump_path=tmp_path, task="watch", when=[f"non_finite({part})"])


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


def test_after_a_kill_every_row_is_there(framework: Framework, watched_loop: Path, tmp_path: Path) -> None:
    """Kill runs (3 of them, or PROBE_KILLS; 50 with PROBE_SOAK) at random instants: every row that ended is there.

    A signal has made one step a dump, as far as it has come.
    """
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    kills = 50 if os.environ.get("PROBE_SOAK") else int(os.environ.get("PROBE_KILLS", 3))
    for kill in range(kills):
        dump = tmp_path / str(kill)
        run = framework.forks.talk(str(watched_loop), str(dump))
        told = chance.randrange(1, 6)
        after = chance.randrange(told)
        for line in range(told):
            assert run.stdout.readline()
            if line == after:
                os.kill(run.pid, signal.SIGUSR1)
        time.sleep(chance.random() * 0.02)
        os.kill(run.pid, signal.SIGKILL)
        said = told + len(run.stdout.read().split())
        run.wait()
        (file,) = watch_files(dump)
        steps = [row.step for row in file.rows]
        where = f"kill {kill} of seed {seed}"
        assert steps == [*range(len(steps))] and len(steps) >= said, where
        assert (file.state, file.damage) == ("torn", []), where
        dumped, asked = steps_of(dump), [step + 1 for step, _, _ in file.triggers]
        assert dumped == asked or (not dumped and len(steps) <= asked[0]), (where, steps, dumped, asked)
        ended = bool(dumped) and len(steps) > dumped[0]
        if dumped and not any((dump / f"step{dumped[0]}").glob("*/*")):  # killed before its first file
            assert not ended, where
        elif dumped:
            assert probe(["recover", str(dump)]) in (0, 1), where  # 1: there was nothing to recover
            (state,) = (verdict.state for verdict in verify(dump))
            assert state in (("complete", "recovered") if ended else ("recovered", "empty")), (where, state)
