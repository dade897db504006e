"""Links that somebody planted: nothing is written or removed through them, nothing is read outside of the dump."""

import errno
import json
import os
import resource
import shutil
import stat

import crafted_journal
import pytest
from at_once import forked
from corpus_cases import copied
from probe_format.errors import FormatError
from probe_format.journal import events
from probe_format.journal.frames import JournalWriter
from probe_format.read.dump import open as open_dump
from probe_format.read.verify import verify
from probe_format.safe_files import Folder, make_folder, replace_file
from probe_format.tensors.files import write_parts
from probe_format.write import recover
from probe_format.write.clear import clear
from probe_format.write.disk import explain
from probe_format.write.rank_writer import RankWriter

HEADER = {**crafted_journal.HEADER, "task": "tensor", "dump_data_dir": "x", "format_version": "1.0"}


@pytest.fixture
def victim(tmp_path):
    """A folder of somebody else's with a file in it; at the end both are as they were."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("keep.pt", "keep.npy", "dump.json", "records.journal"):
        (folder / name).write_text("theirs")
    yield folder
    assert {path.name for path in folder.iterdir()} == {"keep.pt", "keep.npy", "dump.json", "records.journal"}
    assert {path.read_text() for path in folder.iterdir()} == {"theirs"}


def test_recover_follows_no_planted_link(tmp_path, victim):
    rank = copied(tmp_path, "torn")
    for name in ("dump.json", "stack.json", "construct.json", "report.json"):
        (rank / f".{name}.{os.getpid()}.tmp").symlink_to(victim / "dump.json")
        (rank / name).unlink(missing_ok=True)
        (rank / name).symlink_to(victim / "dump.json")
    (recovery,) = recover(tmp_path / "dump")
    assert recovery.outcome == "whole"
    assert not (rank / "dump.json").is_symlink()
    (verdict,) = verify(tmp_path / "dump")
    assert verdict.state == "recovered"


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path, victim):
    (tmp_path / "a").symlink_to(victim / "dump.json")
    replace_file(tmp_path / "a", b"ours")
    assert not (tmp_path / "a").is_symlink() and (tmp_path / "a").read_bytes() == b"ours"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "folder", b"ours")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "folder", "victim"}


@pytest.mark.parametrize("link", ["step0", "step0/rank", "step0/rank/dump_tensor_data"])
def test_no_folder_below_dump_path_may_be_a_link(tmp_path, victim, link):
    dump = tmp_path / "dump"
    (dump / link).parent.mkdir(parents=True)
    (dump / link).symlink_to(victim)
    with pytest.raises(OSError) as error:
        RankWriter(dump / "step0" / "rank", HEADER)
    assert error.value.errno == errno.ELOOP
    assert str(dump / link) in explain(error.value, dump) and "is a link" in explain(error.value, dump)
    with pytest.raises(OSError, match="link"):
        clear(dump / "step0" / "rank")


def test_dump_path_itself_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "dump").symlink_to(tmp_path / "real")
    RankWriter(tmp_path / "dump" / "step0" / "rank", HEADER).finish(final=True)
    assert (tmp_path / "real" / "step0" / "rank" / "dump.json").is_file()
    assert [rank.number for rank in open_dump(tmp_path / "dump").ranks] == [None]
    clear(tmp_path / "dump" / "step0" / "rank")
    assert not (tmp_path / "real" / "step0" / "rank" / "dump.json").exists()


def test_the_journal_and_tensor_files_are_made_through_no_link(tmp_path, victim):
    (tmp_path / "records.journal").symlink_to(victim / "records.journal")
    with pytest.raises(OSError) as error:
        JournalWriter(tmp_path / "records.journal", lambda *event: None)
    assert error.value.errno == errno.ELOOP
    (tmp_path / "x.npy").symlink_to(victim / "keep.npy")
    write_parts(tmp_path / "x.npy", [b"ours"])
    assert not (tmp_path / "x.npy").is_symlink()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_and_folders_are_for_their_group_at_most(tmp_path, umask):
    before = os.umask(umask)
    try:
        rank = tmp_path / "a" / "dump" / "step0" / "rank"
        writer = RankWriter(rank, HEADER)
        write_parts(writer.tensor_directory / "x.npy", [b"x"])
        writer.finish(final=False)
    finally:
        os.umask(before)
    for path in (tmp_path / "a").rglob("*"):
        wanted = (0o750 if path.is_dir() else 0o640) & ~umask
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert (rank / "records.journal").is_file()


def test_a_file_in_the_way_of_a_folder_is_told(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError) as error:
        make_folder(tmp_path / "a" / "b")
    assert error.value.errno in (errno.EEXIST, errno.ENOTDIR)


@pytest.fixture
def dump(tmp_path):
    return copied(tmp_path).parents[1]


@pytest.mark.parametrize("link", ["step0", "step0/rank"])
def test_a_folder_that_leads_outside_is_not_read(tmp_path, dump, link):
    shutil.move(dump / link, tmp_path / "elsewhere")
    (dump / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="leads out of the dump"):
        open_dump(dump)


@pytest.mark.parametrize(
    "name", ["dump.json", "stack.json", "construct.json", "report.json", "dump_tensor_data"]
)
def test_a_file_that_is_a_link_is_not_read(tmp_path, dump, name):
    rank = dump / "step0" / "rank"
    shutil.move(rank / name, tmp_path / "elsewhere")
    (rank / name).symlink_to(tmp_path / "elsewhere")
    (verdict,) = verify(dump)
    assert verdict.state == "damaged" and "is a link" in "\n".join(verdict.problems)


def test_a_tensor_file_that_is_a_link_is_not_read(tmp_path, dump):
    files = dump / "step0" / "rank" / "dump_tensor_data"
    for path in files.iterdir():
        target = shutil.move(path, tmp_path / path.name)
        path.symlink_to(target)
    (verdict,) = verify(dump)
    assert verdict.state == "damaged" and "is a link" in verdict.problems[0]
    (rank,) = open_dump(dump).ranks
    tensor = next(tensor for record in rank.records for tensor in record.tensors)
    with pytest.raises(FormatError, match="is a link"):
        tensor.load()


@pytest.mark.parametrize("elsewhere", ["/outside", "../../../outside", "a\\u0000b", "\\ud800"])
def test_dump_data_dir_leads_nowhere_else(tmp_path, dump, elsewhere):
    rank = dump / "step0" / "rank"
    shutil.move(rank / "dump_tensor_data", tmp_path / "outside")
    raw = (rank / "dump.json").read_text()
    where = str(tmp_path / "outside") if elsewhere == "/outside" else elsewhere
    (rank / "dump.json").write_text(
        raw.replace('"dump_data_dir":"dump_tensor_data"', f'"dump_data_dir":"{where}"')
    )
    (found,) = open_dump(dump).ranks
    tensor = next(tensor for record in found.records for tensor in record.tensors)
    assert rank in tensor.file.parents
    with pytest.raises(FormatError, match="is missing"):
        tensor.load()


class Run:
    """A step of a run that is being written."""

    def __init__(self, path):
        self.rank = path / "step0" / "rank"
        self.writer = RankWriter(self.rank, HEADER)
        self.tensors = Folder(self.rank / "dump_tensor_data", path)
        self.save("before.pt")

    def save(self, name):
        write_parts(name, [b"whole"], self.tensors)
        self.writer.append(events.fault(name, "told"))

    def end(self):
        self.writer.finish(final=False)
        self.save("late.pt")
        self.writer.finish(final=True)


@pytest.mark.parametrize("link", ["step0", "step0/rank", "step0/rank/dump_tensor_data"])
def test_a_link_put_in_while_a_run_goes_on_leads_nothing_astray(tmp_path, victim, link):
    run = Run(tmp_path / "dump")
    moved, there = tmp_path / "moved", tmp_path / "dump" / link
    there.rename(moved)
    there.symlink_to(victim)
    run.save("after.pt")
    run.end()
    rank = moved / os.path.relpath(run.rank, there) if link != "step0/rank/dump_tensor_data" else run.rank
    tensors = rank / "dump_tensor_data" if link != "step0/rank/dump_tensor_data" else moved
    assert {path.name for path in tensors.iterdir()} == {"before.pt", "after.pt", "late.pt"}
    report = json.loads((rank / "report.json").read_text())
    assert report["state"] == "complete" and len(report["faults"]) == 3
    assert not (rank / "records.journal").exists()


def test_a_folder_that_is_gone_is_told_by_the_name_of_the_file_alone(tmp_path):
    run = Run(tmp_path / "dump")
    shutil.rmtree(run.rank)
    for write in (run.end, lambda: replace_file(run.rank / "x.json", b"")):
        with pytest.raises(FileNotFoundError, match=rf"No such file or directory: '{run.rank}[^']*'$"):
            write()


@pytest.mark.parametrize("limit", [1024, 64])
@pytest.mark.parametrize("folders", [0, 20])
def test_what_the_user_closed_is_opened_again_and_his_own_files_stay_his(tmp_path, limit, folders):
    """`os.closerange`, as daemons do; the numbers, and with few of them all of ours, then go to the user's files."""
    own = [tmp_path / f"own{i}" for i in range(40 - folders)]
    (tmp_path / "theirs").mkdir()

    def daemon():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        run = Run(tmp_path / "dump")
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        files = [path.open("w+") for path in own]
        _held = [os.open(tmp_path / "theirs", os.O_RDONLY) for _ in range(folders)]
        run.save("after.pt")
        for file in files:
            file.write("theirs")
            file.flush()
        run.end()
        for file in files:
            file.seek(0)
            assert file.read() == "theirs", file.name

    forked(daemon)()
    assert list((tmp_path / "theirs").iterdir()) == []
    assert all(path.read_text() == "theirs" for path in own)
    (rank,) = open_dump(tmp_path / "dump").ranks
    assert rank.report.state == "complete" and len(rank.report.faults) == 3
    assert len(list((rank.path / "dump_tensor_data").iterdir())) == 3


def test_a_folder_that_another_one_replaced_is_not_written(tmp_path):
    def daemon():
        run = Run(tmp_path / "dump")
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # now the folder has to be found again
        run.rank.rename(tmp_path / "moved")
        run.rank.mkdir()
        with pytest.raises(OSError) as error:
            run.save("after.pt")
        assert error.value.errno in (errno.ESTALE, errno.ENOENT)
        assert list(run.rank.iterdir()) == []

    forked(daemon)()
