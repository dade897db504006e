"""The steps of two processes never mix, whatever rank they believe to be; and what a process closes costs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rank_run
from framework import Framework
from probe_format import open
from probe_format.read.verify import verify


class Process:
    """A process that dumps steps, a command at a time."""

    def __init__(self, framework: Framework, dump: Path, number: int, **keys: Any) -> None:
        words = (rank_run.__file__, framework.home, str(dump), str(number), json.dumps(keys))
        self.process = framework.forks.talk(*words)
        self.number = number

    def do(self, *commands: str) -> None:
        for command in commands:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
            self.wait()

    def wait(self) -> None:
        assert self.process.stdout.readline() == "done\n", self.process.communicate()[1]

    def end(self) -> str:
        """What it said on stderr."""
        _, said = self.process.communicate("exit\n")
        assert self.process.code == 0, said
        return said


@pytest.fixture
def processes(framework: Framework, tmp_path: Path) -> Iterator[Any]:
    made: list[Process] = []

    def start(**keys: Any) -> Process:
        made.append(Process(framework, tmp_path / "dump", len(made) + 1, **keys))
        made[-1].wait()
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.communicate()


def whose(dump: Path) -> dict[str, set[float]]:
    """The folder of each rank of each step, with the numbers of the processes whose inputs are in it."""
    assert {verdict.state for verdict in verify(dump)} == {"complete"}
    found: dict[str, set[float]] = {}
    for rank in open(dump).ranks:
        calls = [
            each
            for each in rank.records
            if each.name.startswith(("Module.", "Cell.")) and each.kind == "forward"
        ]
        given = [each.max for call in calls for each in call.tensors if each.slot == "input_args.0"]
        found[f"{rank.path.parent.name}/{rank.path.name}"] = {float(given[0] or 0)}
    return found


def names(found: dict[str, set[float]]) -> list[tuple[str, float]]:
    """The same, with ``proc`` in place of the names of further processes, in order."""
    return sorted((re.sub(r"proc\d+", "proc", place), number) for place, (number,) in found.items())


def test_two_processes_that_overwrite_do_not_replace_each_others_steps(
    processes: Any, tmp_path: Path
) -> None:
    first, second = processes(overwrite=True), processes(overwrite=True)
    first.do("start", "stop", "step")
    second.do("start", "stop", "step", "start", "stop", "step")
    first.do("start", "stop", "step")
    said = first.end(), second.end()
    assert names(whose(tmp_path / "dump")) == [
        ("step0/proc", 2), ("step0/rank", 1), ("step1/proc", 2), ("step1/rank", 1),
    ]  # fmt: skip
    assert (
        "another process" not in said[0] and said[1].count("another process writes this rank's folders") == 1
    )


def test_who_comes_later_finds_what_is_held_in_any_step(processes: Any, tmp_path: Path) -> None:
    first = processes()
    first.do("start", "stop", "step", "start")
    second = processes()
    second.do("start", "stop", "step", "start", "stop", "step")
    first.do("stop", "step", "start", "stop", "step")
    first.end(), second.end()
    assert names(whose(tmp_path / "dump")) == [
        ("step0/proc", 2), ("step0/rank", 1), ("step1/proc", 2), ("step1/rank", 1), ("step2/rank", 1),
    ]  # fmt: skip


def test_four_processes_that_believe_to_be_one_rank(processes: Any, tmp_path: Path) -> None:
    four = [processes() for _ in range(4)]
    for command in ("start", "stop", "step", "start", "stop", "step"):
        for each in four:
            each.process.stdin.write(f"{command}\n")
            each.process.stdin.flush()
    for each in four:
        each.end()
    found = whose(tmp_path / "dump")
    by_step = [[each for place, each in found.items() if place.startswith(f"step{n}/")] for n in range(2)]
    assert [sorted(map(list, each)) for each in by_step] == [[[1.0], [2.0], [3.0], [4.0]]] * 2
    assert len({place.split("/")[1] for place in found}) == 4, "each has one name in all steps"


def test_whoever_ended_holds_nothing(processes: Any, tmp_path: Path) -> None:
    first = processes(overwrite=True)
    first.do("start", "stop", "step")
    first.process.kill()
    first.process.wait()
    second = processes(overwrite=True)
    second.do("start", "stop", "step")
    second.end()
    assert whose(tmp_path / "dump") == {"step0/rank": {2.0}}


@pytest.mark.parametrize("level", ["mix", "debug"])
def test_a_run_that_closes_every_descriptor_keeps_its_files_and_its_dump(
    processes: Any, level: str, tmp_path: Path
) -> None:
    run = processes(level=level)
    run.do(
        "start", "close", "stop", "step", "start", "close", "stop", "close", "step", "start", "stop", "step"
    )
    said = run.end()
    assert "fault" not in said, said
    assert {verdict.state for verdict in verify(tmp_path / "dump")} == {"complete"}
    ranks = open(tmp_path / "dump").ranks
    assert [rank.step for rank in ranks] == [0, 1, 2] and len({len(rank.records) for rank in ranks}) == 1
