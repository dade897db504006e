"""A watch file, whole, growing, cut off at every byte, and damaged."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from probe_format.cli.main import main as probe
from probe_format.errors import FormatError
from probe_format.watch import ABSENT, Column, WatchFile, WatchWriter, free_place, watch_files

A = Column("gradients", "a.b", "weight", 6)
B = Column("weights", "a.b", "weight", 6)
C = Column("activations", "", "output.0", 2)


def written(folder: Path, rank: int | None = None, *, closed: bool = True) -> Path:
    path = free_place(folder, rank)
    assert path is not None
    writer = WatchWriter(path, {"tool": "test", "rank": rank})
    writer.columns([A, B])
    writer.row(0, np.array([1.5, 2.0]), {})
    writer.unseen("a Cell", "a reason")
    writer.row(1, np.array([math.nan, 1e40]), {0: (2, 1)})
    writer.columns([A, B, C])
    writer.row(2, np.array([ABSENT, 1e-42, 0.0]), {}, skipped=1)
    if closed:
        writer.close()
    return path


def numbers(file: WatchFile) -> list[list[float | None]]:
    return [[row.norm(i) for i in range(len(file.columns))] for row in file.rows]


def test_a_round_trip(tmp_path: Path) -> None:
    file = WatchFile.read(written(tmp_path, 3))
    assert (file.state, file.rank, file.label) == ("complete", 3, "watch/rank3")
    assert file.columns == [A, B, C]
    assert [column.name for column in file.columns] == ["a.b.weight", "a.b.weight", "output.0"]
    first, second, third = numbers(file)
    assert first == [1.5, 2.0, None]
    assert math.isnan(second[0] or 0.0) and second[1:] == [1e40, None]
    assert third == [None, 1e-42, 0.0]
    assert [row.bad for row in file.rows] == [{}, {0: (2, 1)}, {}]
    assert [file.bad(row) for row in file.rows] == [0, 1, 0]
    assert [row.skipped for row in file.rows] == [0, 0, 1]
    assert file.total(file.rows[0], "weights") == 2.0
    assert (file.header["tool"], file.header["watch_version"], file.unseen) == (
        "test",
        "1.0",
        [("a Cell", "a reason")],
    )


def test_cut_at_any_byte_it_loses_the_last_row_alone(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    path, ends, before = tmp_path / "rank.rows", [], 0
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        file = WatchFile.read(path)
        assert not file.damage
        assert file.state == ("complete" if size == len(whole) else "torn" if file.rows else "empty")
        assert before <= len(file.rows) <= before + 1
        if len(file.rows) > before:
            ends.append(size)
        before = len(file.rows)
    assert len(ends) == 3


def test_a_byte_that_changed_loses_one_frame(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    path = tmp_path / "rank.rows"
    for at in range(8, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        file = WatchFile.read(path)
        assert len(file.rows) >= 2 or at > whole.rindex(b'{"k":"row"') - 8
        assert file.state != "complete"


def test_it_is_read_while_it_grows(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    path = tmp_path / "rank.rows"
    path.write_bytes(b"")
    file = WatchFile.read(path)
    found = 0
    for at in range(0, len(whole), 7):
        with path.open("ab") as out:
            out.write(whole[at : at + 7])
        found += file.more()
    assert (found, file.state, len(file.columns)) == (3, "complete", 3)


def test_what_damage_has_taken_has_no_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    at = data.index(b'{"k":"columns"')
    path.write_bytes(data[: at + 3] + b"X" + data[at + 4 :])
    file = WatchFile.read(path)
    assert file.state == "damaged"
    assert [(column.kind, column.what) for column in file.columns] == [
        ("?", "0"),
        ("?", "1"),
        ("activations", "output.0"),
    ]
    assert numbers(file)[0] == [1.5, 2.0, None]


def test_the_file_of_an_earlier_run_and_of_a_living_one(tmp_path: Path) -> None:
    writer = WatchWriter(tmp_path / "watch" / "rank.rows", {})
    assert free_place(tmp_path, None) == tmp_path / "watch" / f"proc{os.getpid()}.rows"
    assert free_place(tmp_path, 1) == tmp_path / "watch" / "rank1.rows"
    writer.close()
    assert free_place(tmp_path, None) is None
    with pytest.raises(FileExistsError):
        WatchWriter(tmp_path / "watch" / "rank.rows", {})


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    writer = WatchWriter(tmp_path / "watch" / "rank.rows", {})
    child = os.fork()
    if not child:
        writer.row(9, np.zeros(0), {})
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.row(0, np.zeros(0), {})
    writer.close()
    (file,) = watch_files(tmp_path)
    assert ([row.step for row in file.rows], file.state) == ([0], "complete")


def test_what_is_no_watch_file(tmp_path: Path) -> None:
    assert watch_files(tmp_path) == []
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "rank0.rows").write_bytes(b"something else")
    with pytest.raises(FormatError, match="is not a watch file"):
        watch_files(tmp_path)


def test_a_file_of_another_major_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_format.watch.writer.VERSION", "2.0")
    written(tmp_path)
    with pytest.raises(FormatError, match=r"rows is of version 2\.0 of its format"):
        watch_files(tmp_path)


def test_show_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, 1)
    assert probe(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == ["complete", str(path)]
    assert probe(["show", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "watch/rank1: steps 0 to 2, 3 rows, complete" in said.replace(": , ", ": ")
    assert "weights: norm 2 in step 0, 1e-42 in step 2, of 1 tensors" in said
    assert "not finite in 1 steps, first in step 1: gradients of a.b.weight (2 NaN, 1 infinite)" in said
    path.write_bytes(path.read_bytes()[:-1])
    assert probe(["verify", str(tmp_path)]) == 3
    assert probe(["show", str(tmp_path), "--rank", "5"]) == 1
    assert "probe trend" in capsys.readouterr().err


def test_a_row_of_a_file_that_was_removed_raises(tmp_path: Path) -> None:
    """The open file would take every row, and nobody would hear that they are lost."""
    writer = WatchWriter(tmp_path / "watch" / "rank.rows", {})
    writer.row(0, np.zeros(0), {})
    shutil.rmtree(tmp_path / "watch")
    with pytest.raises(FileNotFoundError):
        writer.row(1, np.zeros(0), {})
    writer.close()


def test_a_pipe_is_no_watch_file_and_is_not_waited_for(tmp_path: Path) -> None:
    written(tmp_path, 0)
    os.mkfifo(pipe := tmp_path / "watch" / "rank1.rows")
    with pytest.raises(FormatError, match=f"{pipe} is no file"):
        watch_files(tmp_path)
