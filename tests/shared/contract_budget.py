"""`max_bytes`, `min_free_bytes`: the dump stays within its limit, the run goes on, and what is left out is said."""

from __future__ import annotations

import contextlib
import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import rank_dir, report, validate
from framework import Framework
from probe_format import open
from probe_format.cli.main import main as probe
from probe_format.layout import find_steps
from probe_format.read.verify import verify
from probe_runtime.config import resolve
from probe_runtime.watch import Allowance, Budget

BLOCK = 4096
LAYERS, WIDTH = 4, 160


def size_of(dump: Path) -> int:
    """What a dump takes: each file once, by its blocks."""
    sizes = {}
    for folder, folders, files in os.walk(dump):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                state = os.lstat(os.path.join(folder, name))
                sizes[state.st_ino] = -(-state.st_size // BLOCK) * BLOCK
    return sum(sizes.values())


class Run:
    """A run, what it took at its fullest, and what it was told."""

    def __init__(self, framework: Framework, dump: Path, **keys: Any) -> None:
        layers = (framework.linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.framework, self.dump, self.net = framework, dump, framework.sequence(*layers)
        self.debugger = framework.debugger(dump_path=str(dump), **{"level": "mix", "task": "tensor", **keys})
        self.most = 0
        self.told: list[str] = []

    def steps(self, count: int = 1) -> Run:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(count):
                self.debugger.start(self.net)
                self.framework.train(self.net, self.framework.ones(8, WIDTH))
                self.look()
                self.debugger.stop()
                self.look()
                self.debugger.step()
                self.look()
        self.told += [text for each in caught if "bytes" in (text := str(each.message))]
        return self

    def look(self) -> None:
        self.most = max(self.most, size_of(self.dump))

    def files(self) -> dict[int, int]:
        """How many tensors of each step that has files have one of their own."""
        steps = (each.step for each in find_steps(self.dump))
        return {
            step: report(self.dump, step)["tensor_files"]
            for step in steps
            if rank_dir(self.dump, step).joinpath("report.json").exists()
        }

    def left_out(self, step: int) -> dict[str, str]:
        return {each["what"]: each["why"] for each in report(self.dump, step)["not_seen"]}


@pytest.fixture
def start(framework: Framework) -> Iterator[Callable[..., Run]]:
    """Takes the dump path and the keys of a run."""
    made: list[Run] = []

    def begin(dump: Path, **keys: Any) -> Run:
        made.append(Run(framework, dump, **keys))
        return made[-1]

    yield begin
    for each in made:
        each.debugger.close()


@pytest.fixture(scope="module")
def sizes(framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int]:
    """The bytes of a step with files, and of one without."""
    found = []
    for task in ("tensor", "statistics"):
        dump = tmp_path_factory.mktemp(task)
        run = Run(framework, dump, task=task)
        run.steps().debugger.close()
        found.append(size_of(dump))
    assert found[0] > 3 * found[1]
    return found[0], found[1]


def test_tensors_lose_their_files_and_then_nothing_is_recorded(
    start: Any, sizes: tuple[int, int], tmp_path: Path
) -> None:
    whole, numbers = sizes
    limit = 9 * whole // 2
    run = start(tmp_path, max_bytes=limit).steps(5)
    files = [bool(count) for count in run.files().values()]
    assert files == sorted(files, reverse=True) and sum(files) in (2, 3, 4)
    many = limit // numbers + 3
    run.steps(many)
    run.debugger.close()
    assert run.most <= limit
    (first, end) = run.told
    assert "max_bytes" in first and "numbers alone" in first
    assert "max_bytes" in end and "stopped collecting" in end and "until there is room" in end
    *recorded, last = [each.step for each in find_steps(tmp_path)]
    assert 5 < last < many, "some steps have only numbers, and some are not dumped"
    assert list(recorded) == [*range(last)]
    assert "numbers alone" in run.left_out(4)["tensor files"]
    assert "tensor files" not in run.left_out(1)
    states = {verdict.path.parent.name: verdict.state for verdict in verify(tmp_path)}
    assert set(states.values()) - {"complete"} <= {"empty", "torn"}
    assert states[f"step{last}"] != "complete"
    assert not list(open(tmp_path / f"step{last}").ranks[0].records)
    validate(tmp_path / "step4" / "rank")


def test_a_step_that_is_too_large_loses_the_files_of_its_rest(
    start: Any, sizes: tuple[int, int], tmp_path: Path
) -> None:
    whole, numbers = sizes
    run = start(tmp_path, max_bytes=whole // 2 + numbers).steps()
    run.debugger.close()
    found = report(tmp_path)
    assert 0 < found["tensor_files"] < found["tensors"]
    assert "from " in run.left_out(0)["tensor files"]
    (rank,) = open(tmp_path).ranks
    why = [
        tensor.json["lost"] for record in rank.records for tensor in record.tensors if "lost" in tensor.json
    ]
    assert why and all("tensor file: max_bytes: " in each for each in why)
    assert not found["faults"] and not found["counts"]["failed"]
    assert [verdict.state for verdict in verify(tmp_path)] == ["complete"]
    assert run.most <= whole // 2 + numbers
    validate(tmp_path / "step0" / "rank")


def test_a_ring_makes_room_for_files_again(start: Any, sizes: tuple[int, int], tmp_path: Path) -> None:
    whole, _ = sizes
    run = start(tmp_path, max_bytes=4 * whole, keep={"last": 5})
    files: dict[int, int] = {}
    for _ in range(16):
        files.update(run.steps().files())
    run.debugger.close()
    assert len(find_steps(tmp_path)) == 5, "the ring is what was asked for"
    assert not all(files.values()) and sum(map(bool, files.values())) > 3
    assert any(files[step] for step in range(6, 16)), "files come back"
    assert run.most <= 4 * whole
    assert ["numbers alone" in text for text in run.told] == [True]
    assert {verdict.state for verdict in verify(tmp_path)} == {"complete"}


def test_the_ring_shrinks(start: Any, sizes: tuple[int, int], tmp_path: Path) -> None:
    _, numbers = sizes
    limit = 8 * numbers
    run = start(tmp_path, task="statistics", max_bytes=limit, keep={"last": 50}).steps(20)
    run.debugger.close()
    assert run.most <= limit
    assert ["fewer steps stay" in text for text in run.told] == [True]
    there = [each.step for each in find_steps(tmp_path)]
    assert there == [*range(there[0], 20)] and 1 < len(there) < 9
    assert f"step{there[0] - 1}" in run.left_out(19)
    assert {verdict.state for verdict in verify(tmp_path)} == {"complete"}


def test_a_step_without_room_for_its_numbers_ends_and_can_be_recovered(
    start: Any, sizes: tuple[int, int], tmp_path: Path
) -> None:
    run = start(tmp_path, task="statistics", max_bytes=12 * BLOCK, keep={"last": 3}).steps(4)
    run.debugger.close()
    assert run.most <= 12 * BLOCK
    (told,) = run.told
    assert "max_bytes" in told and "stopped collecting" in told
    (rank,) = open(tmp_path).ranks
    assert rank.step == 0 and len(list(rank.records))
    assert probe(["recover", str(tmp_path)]) == 0
    assert ["max_bytes" in fault["message"] for fault in report(tmp_path)["faults"]] == [True]


def test_files_that_are_written_later(start: Any, sizes: tuple[int, int], tmp_path: Path) -> None:
    whole, numbers = sizes
    run = start(tmp_path, max_bytes=whole // 2 + numbers, async_dump=True).steps(3)
    run.debugger.close()
    assert run.most <= whole // 2 + numbers
    assert 0 < report(tmp_path)["tensor_files"] < report(tmp_path)["tensors"]
    assert not report(tmp_path)["faults"]
    left = {"complete", "empty"} | (
        {"torn"} if any("stopped collecting" in text for text in run.told) else set()
    )
    assert {verdict.state for verdict in verify(tmp_path)} <= left


def test_a_larger_limit_is_taken_in_the_running_job(
    framework: Framework, start: Any, sizes: tuple[int, int], tmp_path: Path
) -> None:
    whole, _ = sizes
    file, dump = tmp_path / "probe.yaml", tmp_path / "dump"

    def write(limit: int) -> None:
        file.write_text(f"dump_path: {dump}\nlevel: mix\ntask: tensor\nreload: true\nmax_bytes: {limit}\n")

    write(whole)
    run = start(dump)
    run.debugger.close()
    run.debugger = framework.debugger(str(file))
    run.steps(2)
    write(10 * whole)
    run.steps(3)
    run.debugger.close()
    files = run.files()
    assert not files.get(1) and files[3] > files[0]


def test_each_process_has_its_part(tmp_path: Path) -> None:
    budget = Budget(resolve(dump_path=tmp_path, max_bytes=4_000_000), lambda: 4)
    assert budget.begin() is not None
    left, why = budget.left(0)
    assert left == 1_000_000 and "this process's part of 4,000,000" in why


# -- a small file system -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"there is no mount: {error}")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _free(place: Path) -> int:
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


@pytest.mark.parametrize("keep", [None, {"last": 2}], ids=["all", "ring"])
def test_a_small_disk_is_never_filled(start: Any, small: Path, keep: Any) -> None:
    run = start(small / "dump", min_free_bytes=1 << 20, keep=keep)
    for step in range(12 if keep else 60):
        run.steps()
        assert _free(small) >= (1 << 20) - 16 * BLOCK, step
        if any("stopped collecting" in text for text in run.told):
            break
    run.steps(2)
    run.debugger.close()
    states = {verdict.path.parent.name: verdict.state for verdict in verify(small / "dump")}
    if keep is None:
        assert ["min_free_bytes" in text for text in run.told] == [True, True], run.told
        assert states.pop(f"step{len(states) - 1}") != "complete"
        assert len(states) == step < 60
    else:
        assert not run.told or "numbers alone" in run.told[0]
        assert sorted(states) == ["step12", "step13"]
    assert set(states.values()) == {"complete"}


def test_somebody_else_fills_the_disk_and_makes_room_again(start: Any, small: Path) -> None:
    run = start(small / "dump", min_free_bytes=1 << 20, keep={"last": 3}).steps(3)
    (small / "other").write_bytes(bytes(_free(small) - (1 << 19)))
    free = _free(small)
    run.steps(4)
    assert _free(small) >= free - 16 * BLOCK
    (small / "other").unlink()
    run.steps(3)
    run.debugger.close()
    assert [each.step for each in find_steps(small / "dump")] == [7, 8, 9]
    assert {verdict.state for verdict in verify(small / "dump")} == {"complete"}


def test_without_a_limit_a_full_disk_ends_steps_and_not_the_run(start: Any, small: Path) -> None:
    run = start(small / "dump").steps(12)
    run.debugger.close()
    assert {verdict.state for verdict in verify(small / "dump")} & {"complete"}


def test_files_and_numbers_are_claimed_by_many_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    budget = Budget(resolve(dump_path=tmp_path, max_bytes=1 << 20), lambda: 1)
    step = budget.begin()
    assert isinstance(step, Allowance)
    made: list[str] = []
    write = step.within(lambda name, parts, folder: made.append(name) or 0)  # type: ignore[func-returns-value]

    def one(number: int) -> None:
        with contextlib.suppress(OSError):
            write(f"{number}", [bytes(BLOCK)], None)  # type: ignore[arg-type]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(1000)))
    assert step.files == len(made) * BLOCK <= (1 << 20) * 7 // 8
    assert len(made) > 100
