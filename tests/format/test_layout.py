"""Where dumps are found, and whether one can be written."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from corpus_cases import CORPUS
from hypothesis import given
from hypothesis import strategies as st
from probe_format.layout import (
    DEBUG,
    DUMP,
    JOURNAL,
    StepDir,
    existing_dump,
    find_steps,
    is_dump_dir,
    rank_dir,
)
from probe_format.read import open as opened
from probe_format.write.disk import check_writable, explain


def put(path: Path, name: str = DUMP) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("{}")
    return path


@given(st.integers(0, 10**6), st.none() | st.integers(0, 10**5))
def test_rank_dirs_are_read_back(step: int, rank: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(rank_dir(Path(folder), step, rank))
        (found,) = find_steps(Path(folder))
        assert found == StepDir(step, path.parent)
        assert [(r.step, r.number, r.path) for r in opened(found.path).ranks] == [(step, rank, path)]
        assert existing_dump(Path(folder), rank) == (path,)


def test_the_directories_are_those_of_msprobe(tmp_path: Path) -> None:
    assert rank_dir(tmp_path, 3, 1) == tmp_path / "step3" / "rank1"
    assert rank_dir(tmp_path, 0, None) == tmp_path / "step0" / "rank"


def test_steps_and_ranks_are_sorted_by_number(tmp_path: Path) -> None:
    for step in (10, 2, 0):
        for rank in ("rank11", "rank2", "rank", "proc77", "proc9"):
            put(tmp_path / f"step{step}" / rank)
    put(tmp_path / "step2" / "rankx")
    put(tmp_path / "steps")
    (tmp_path / "step4").write_text("a file")
    assert [s.step for s in find_steps(tmp_path)] == [0, 2, 10]
    names = [r.path.name for r in opened(tmp_path / "step2").ranks]
    assert names == ["proc77", "proc9", "rank", "rank2", "rank11"]
    assert [r.number for r in opened(tmp_path / "step2").ranks] == [None, None, None, 2, 11]


def test_the_two_modes_of_mindspore(tmp_path: Path) -> None:
    for mode in ("graph", "pynative"):
        for place in ("step10/rank2", "step10/rank10", "step2/rank"):
            put(tmp_path / mode / place)
    graph, pynative = [[(mode, step) for step in (2, 10)] for mode in ("graph", "pynative")]
    assert [(s.mode, s.step) for s in find_steps(tmp_path)] == graph + pynative
    assert [(s.mode, s.step) for s in find_steps(tmp_path / "graph")] == graph
    found = [(rank.path.parts[-3], rank.step, rank.number) for rank in opened(tmp_path).ranks]
    assert found == [(mode, *at) for mode in ("graph", "pynative") for at in ((2, None), (10, 2), (10, 10))]


def test_a_step_or_a_rank_itself(tmp_path: Path) -> None:
    rank = put(tmp_path / "graph" / "step5" / "rank3")
    assert find_steps(rank.parent) == (StepDir(5, rank.parent, "graph"),)
    assert [(r.number, r.path) for r in opened(rank).ranks] == [(3, rank)]
    loose = put(tmp_path / "copied here")
    assert [(r.number, r.path) for r in opened(loose).ranks] == [(None, loose)]


def test_nothing_there(tmp_path: Path) -> None:
    assert find_steps(tmp_path / "nowhere") == ()
    assert find_steps(tmp_path) == ()


@pytest.mark.parametrize(("name", "holds"), [(DUMP, True), (DEBUG, True), (JOURNAL, True), ("x.json", False)])
def test_dump_dirs(name: str, holds: bool, tmp_path: Path) -> None:
    assert is_dump_dir(put(tmp_path / "r", name)) == holds
    assert not is_dump_dir(tmp_path)


# ---------------- earlier data
def test_earlier_data_is_that_of_the_same_process(tmp_path: Path) -> None:
    for rank in ("rank", "rank0", "rank1"):
        put(tmp_path / "step0" / rank)
    put(tmp_path / "step1" / "rank0", JOURNAL)  # a killed run's
    (tmp_path / "step2" / "rank0").mkdir(parents=True)  # empty: nothing to lose
    (tmp_path / "step3" / "rank0" / "dump_tensor_data").mkdir(parents=True)
    assert [p.relative_to(tmp_path).as_posix() for p in existing_dump(tmp_path, 0)] == [
        "step0/rank0",
        "step1/rank0",
        "step3/rank0",
    ]
    assert existing_dump(tmp_path, None) == (tmp_path / "step0" / "rank",)
    assert existing_dump(tmp_path, 7) == ()
    assert existing_dump(tmp_path, 0, steps=(1, 2)) == (tmp_path / "step1" / "rank0",)
    assert existing_dump(tmp_path / "nowhere", 0) == ()


def test_the_dump_of_another_mode_is_not_overwritten(tmp_path: Path) -> None:
    put(tmp_path / "graph" / "step0" / "rank0")
    assert existing_dump(tmp_path, 0) == ()


# ---------------- can it be written?
def test_a_writable_directory_is_left_empty(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "a" / "b") is None
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    for path in (tmp_path / "f", tmp_path / "f" / "dump"):
        said = check_writable(path)
        assert said is not None
        assert f"{tmp_path / 'f'} is a file, not a directory" in said
        assert "choose another dump_path" in said
    assert (tmp_path / "f").read_text() == "mine"


def test_a_name_too_long(tmp_path: Path) -> None:
    said = check_writable(tmp_path / ("x" * 300))
    assert said is not None
    assert "too long" in said


def test_a_place_that_takes_no_files() -> None:
    said = check_writable(Path("/proc/self/dump"))
    assert said is not None
    assert said.startswith("dump_path /proc/self/dump: ")
    assert "choose another dump_path" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        said = check_writable(tmp_path / "d")
    finally:
        tmp_path.chmod(0o700)
    assert said is not None
    assert "no permission" in said


def test_a_full_disk_is_seen_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_writable(tmp_path, need=1 << 62) is not None
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
    said = check_writable(tmp_path)
    assert said is not None
    assert "full" in said
    assert "Free some space" in said


def test_a_disk_that_fills_while_it_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    said = check_writable(tmp_path)
    assert said is not None
    assert "full" in said


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "no permission"),
        (errno.EPERM, "no permission"),
        (errno.EROFS, "read-only"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.EMFILE, "ulimit"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_errors_in_words(number: int, words: str, tmp_path: Path) -> None:
    said = explain(OSError(number, os.strerror(number)), tmp_path / "not made yet")
    assert words in said
    assert str(tmp_path) in said
    assert said.endswith(".")


def test_a_file_system_without_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = list(os.statvfs(tmp_path))
    state[5:8] = [1000, 0, 0]  # files: total, free, free to us
    result = os.statvfs_result(state)
    monkeypatch.setattr(os, "statvfs", lambda _: result)
    assert "inodes" in explain(OSError(errno.ENOSPC, "full"), tmp_path)


# ---------------- what msprobe wrote
WRITTEN = sorted({step.parent for tool in ("torch", "mindspore") for step in (CORPUS / tool).rglob("step*")})


@pytest.mark.parametrize("dump", WRITTEN, ids=lambda dump: str(dump.relative_to(CORPUS)))
def test_every_dump_of_the_corpus_is_found(dump: Path) -> None:
    steps = find_steps(dump)
    assert {s.path for s in steps} == {p for p in dump.iterdir() if p.name.startswith("step")}
    found = {r.path for s in steps for r in opened(s.path).ranks}
    assert found and found == {p.parent for p in dump.glob("step*/*/d*.json")}
