"""`keep: {last: K}`: the last K steps stay, and nothing is removed that this process has not written itself."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from contract_processes import processes, whose  # noqa: F401  a fixture
from framework import Framework
from probe_format.cli.main import main as probe
from probe_format.layout import find_steps
from probe_format.read.verify import verify


def steps_of(dump: Path) -> list[int]:
    return [each.step for each in find_steps(dump)]


def train(framework: Framework, dump: Path, *steps: int, **keys: Any) -> Any:
    """Dump steps of these numbers, and return the debugger, which is still open."""
    net = framework.sequence(framework.linear(2, 2))
    debugger = framework.debugger(dump_path=dump, **{"level": "mix", "task": "tensor", **keys})
    for number in steps:
        debugger.set_init_step(number)
        debugger.start(net)
        framework.train(net, framework.ones(3, 2))
        debugger.stop()
        debugger.step()
    return debugger


def test_the_last_steps_stay(framework: Framework, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    with train(framework, dump, *range(7), keep={"last": 3}) as debugger:
        assert steps_of(dump) == [4, 5, 6]
        debugger.start(framework.sequence(framework.layer()))
        assert steps_of(dump) == [4, 5, 6, 7], "a step is removed when one ends"
    assert steps_of(dump) == [5, 6, 7], "close() ends a step"
    assert {verdict.state for verdict in verify(dump)} <= {"complete", "empty"}
    assert sorted(os.listdir(dump)) == ["step5", "step6", "step7"]


def test_without_it_every_step_stays(framework: Framework, tmp_path: Path) -> None:
    train(framework, tmp_path, *range(4)).close()
    assert steps_of(tmp_path) == [0, 1, 2, 3]


def test_steps_that_are_not_dumped_do_not_count(framework: Framework, tmp_path: Path) -> None:
    train(framework, tmp_path, *range(9), step=["0-8/3"], keep={"last": 2}).close()
    assert steps_of(tmp_path) == [3, 6]


def test_steps_of_an_earlier_run_stay(framework: Framework, tmp_path: Path) -> None:
    train(framework, tmp_path, 0, 1).close()
    train(framework, tmp_path, *range(2, 6), step=["2-9"], keep={"last": 1}).close()
    assert steps_of(tmp_path) == [0, 1, 5]


def test_another_folder_in_the_place_of_a_step_stays(framework: Framework, tmp_path: Path) -> None:
    debugger = train(framework, tmp_path / "dump", 0, keep={"last": 1})
    (rank,) = (tmp_path / "dump" / "step0").iterdir()
    shutil.copytree(rank, tmp_path / "copy")
    shutil.rmtree(rank)
    shutil.move(tmp_path / "copy", rank)
    with debugger:
        train(framework, tmp_path / "dump", 1, 2, keep={"last": 1})
    assert steps_of(tmp_path / "dump") == [0, 2]
    assert (rank / "dump.json").exists()


def test_files_of_somebody_else_stay_where_they_are(framework: Framework, tmp_path: Path) -> None:
    debugger = train(framework, tmp_path, 0, keep={"last": 1})
    (rank,) = (tmp_path / "step0").iterdir()
    (rank / "notes.txt").write_text("mine")
    (tmp_path / "step0" / "more.txt").write_text("mine")
    with debugger:
        train(framework, tmp_path, 1, keep={"last": 1})
    assert sorted(p.name for p in rank.iterdir()) == ["notes.txt"]
    assert (tmp_path / "step0" / "more.txt").exists()


def test_other_ranks_stay(framework: Framework, tmp_path: Path) -> None:
    other = tmp_path / "step0" / "rank7"
    other.mkdir(parents=True)
    (other / "dump.json").write_text("{}")
    train(framework, tmp_path, 0, 1, keep={"last": 1}).close()
    assert os.listdir(tmp_path / "step0") == ["rank7"]
    assert os.listdir(other) == ["dump.json"]


def test_what_cannot_be_removed_is_said_once_and_the_run_goes_on(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **keywords: Any) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be removed, and stays") as said:
        train(framework, tmp_path, *range(4), keep={"last": 1}).close()
    assert len([each for each in said if "cannot be removed" in str(each.message)]) == 1
    assert steps_of(tmp_path) == [0, 1, 2, 3]
    assert {verdict.state for verdict in verify(tmp_path)} == {"complete"}


def test_a_forked_child_removes_nothing(framework: Framework, tmp_path: Path) -> None:
    with train(framework, tmp_path, 0, 1, keep={"last": 2}) as debugger:
        child = os.fork()
        if not child:
            for _ in range(3):
                debugger.start(framework.sequence(framework.layer()))
                debugger.step()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert {"rank"} <= {p.name for p in (tmp_path / "step0").iterdir()}


def test_processes_remove_their_own_folders(processes: Any, tmp_path: Path) -> None:  # noqa: F811
    first, second = processes(keep={"last": 1}, overwrite=True), processes(keep={"last": 2}, overwrite=True)
    for _ in range(4):
        first.do("start", "stop", "step")
        second.do("start", "stop", "step")
    first.end(), second.end()
    found = sorted((place.split("/")[0], number) for place, (number,) in whose(tmp_path / "dump").items())
    assert found == [("step2", 2), ("step3", 1), ("step3", 2)]


KEPT = 2


def test_after_a_kill_the_last_steps_are_recovered(processes: Any, tmp_path: Path) -> None:  # noqa: F811
    """Kill runs (PROBE_KILLS of them) at random instants of two steps, in which two others are removed."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for kill in range(int(os.environ.get("PROBE_KILLS", 3))):
        dump = tmp_path / "dump"
        run = processes(keep={"last": KEPT}).process
        for _ in range(KEPT + 1):
            run.stdin.write("start\nstop\nstep\n")
            run.stdin.flush()
            assert [run.stdout.readline() for _ in range(3)] == ["done\n"] * 3
        run.stdin.write("start\nstop\nstep\n" * 2)
        run.stdin.flush()
        time.sleep(chance.random() * 0.05)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        where = f"kill {kill} of seed {seed}"
        assert probe(["recover", str(dump)]) in (0, 1), where  # 1: there was nothing to recover
        states = {int(v.path.parent.name[4:]): v.state for v in verify(dump)}
        whole = sorted(number for number, state in states.items() if state in ("complete", "recovered"))
        assert len(states) - len(whole) == [*states.values()].count("empty") <= 1, (where, states)
        assert len(whole) in (KEPT, KEPT + 1) and whole[-1] >= KEPT, (where, states)
        assert whole == [*range(whole[0], whole[-1] + 1)], (where, states)
        shutil.rmtree(dump)


@pytest.mark.parametrize("after", [0, 1, 3, 6, 9])
def test_a_kill_while_a_step_is_removed(framework: Framework, tmp_path: Path, after: int) -> None:
    """Kill a run when it has removed some of a step's files; what is left is whole, and a later run clears the rest."""
    debugger = train(framework, tmp_path, 0, 1, keep={"last": 2})
    child = os.fork()
    if not child:
        _removed_in_part(tmp_path / "step0", after)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    debugger.close()
    assert [p.name for p in (tmp_path / "step0").iterdir()] == [".removed-rank"]
    assert probe(["recover", str(tmp_path)]) in (0, 1)
    assert [(v.path.parent.name, v.state) for v in verify(tmp_path)] == [("step1", "complete")]
    train(framework, tmp_path, 0, 1, keep={"last": 1}, overwrite=True).close()
    assert os.listdir(tmp_path) == ["step1"]
    assert {verdict.state for verdict in verify(tmp_path)} == {"complete"}


def _removed_in_part(step: Path, after: int) -> None:
    from probe_runtime.watch import Ring

    unlink, done = os.unlink, 0

    def counted(*args: Any, **keywords: Any) -> None:
        nonlocal done
        if done == after:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        unlink(*args, **keywords)

    os.unlink = counted  # type: ignore[assignment]
    ring = Ring(1)
    ring.ended([step / "rank"])
    ring.ended([step])  # any other folder, so that the first is one too many
    os._exit(0)
