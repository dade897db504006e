"""What a rank's writer leaves on disk, and that it is what its journal says."""

import json
import os
import threading
import zlib

import crafted_journal
import pytest
from at_once import in_threads
from folded import bytes_of, documents_of
from full_disk import file_size_limit
from hypothesis import given
from hypothesis import strategies as st
from probe_format import open as open_dump
from probe_format.journal import Fold, JournalWriter, events, folded, read_journal
from probe_format.journal.version1 import Upgrade
from probe_format.write import Count, Documents, recover
from probe_format.write.documents import FORMAT_VERSION, write_documents
from probe_format.write.rank_writer import RankWriter
from streams import streams
from strict_json import strict

HEADER = {**crafted_journal.HEADER, "format_version": "1.0"}
TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": 0.0,
    "Mean": 0.5,
    "Norm": 1.0,
}
FILES = ("dump.json", "stack.json", "construct.json")


def strict_file(path):
    return strict(path.read_bytes())


def call(name, *output, **kw):
    yield {"k": "enter", "n": name, "u": None, "a": [TENSOR], "w": {}, **kw}
    yield {"k": "exit", "n": name, "o": list(output)}


def old(writer):
    """What appends an event of version 1."""
    upgrade = Upgrade()

    def append(event, *count):
        for new in [*upgrade.event(event), upgrade.files_written()]:
            if new[0] != {"k": "fill", "h": []}:
                writer.append(new, *count)

    return append


def write_all(writer, events):
    append = old(writer)
    for event in events:
        append(event)


def written(folder, *events, final=True, **header):
    """The report on a dump of these events."""
    writer = RankWriter(folder, {**HEADER, **header})
    write_all(writer, events)
    return writer.finish(final=final)


def in_journal(folder):
    return documents_of(folded(read_journal(folder / "records.journal")))


def same_as_journal(folder):
    """The files say what the journal beside them says, in the same order."""
    documents = in_journal(folder)
    dump = strict_file(folder / "dump.json")
    assert dump.pop("data") == documents.data
    assert list(strict_file(folder / "dump.json")["data"]) == list(documents.data)
    assert dump == documents.header
    if documents.header.get("extra_info", True):
        assert strict_file(folder / "stack.json") == documents.stack
        level_1 = documents.header.get("level") == "L1"
        assert strict_file(folder / "construct.json") == ({} if level_1 else documents.construct)
        assert not level_1 or (folder / "construct.json").read_bytes() == b"{}\n"
    report = strict_file(folder / "report.json")
    assert report["records"] == len(documents.data)
    assert report["faults"] == documents.faults
    assert report["journal"] == {"bytes": (folder / "records.journal").stat().st_size}
    return documents


def entries(folder):
    """What the report says of each file, made from the file."""
    blobs = {name: (folder / name).read_bytes() for name in FILES}
    return {name: {"bytes": len(raw), "crc32": f"{zlib.crc32(raw):08x}"} for name, raw in blobs.items()}


@given(streams(), st.data())
def test_the_files_say_what_the_journal_says(tmp_path_factory, stream, data):
    head, *events = stream
    folder = tmp_path_factory.mktemp("rank")
    writer = RankWriter(folder, head["header"])
    append = old(writer)
    stops = data.draw(st.sets(st.integers(0, len(events)), max_size=2))
    for i in range(len(events) + 1):
        if i in stops:
            report = writer.finish(final=False)
            documents = same_as_journal(folder)
            assert report == strict_file(folder / "report.json")
            assert report["state"] == "open"
        if i < len(events):
            append(events[i])
    documents = in_journal(folder)
    before = len(events) in stops and entries(folder)
    covered = {"bytes": (folder / "records.journal").stat().st_size}
    report = writer.finish(final=True)
    assert report["files"] == entries(folder)
    assert not before or report["files"] == before
    assert strict_file(folder / "dump.json")["data"] == documents.data
    (rank,) = open_dump(folder).ranks
    assert rank.source == "files" and [str(r.name) for r in rank.records] == list(documents.data)
    assert (report["state"], report["journal"], report["records"]) == (
        "complete",
        covered,
        len(documents.data),
    )
    assert not (folder / "records.journal").exists()


def test_what_else_is_in_the_file_is_read_from_it(tmp_path):
    """What this process remembers of the journal counts only while the file ends with it."""
    writer = RankWriter(tmp_path, HEADER)
    write_all(writer, call("Torch.a.0.forward", TENSOR))
    other = JournalWriter(tmp_path / "records.journal", Fold().take)
    write_all(other, call("Torch.b.0.forward"))
    write_all(writer, call("Torch.c.0.forward"))
    writer.finish(final=False)
    names = ["Torch.a.0.forward", "Torch.b.0.forward", "Torch.c.0.forward"]
    assert list(same_as_journal(tmp_path).data) == names
    other.close()


def test_one_record_a_line_after_the_header(tmp_path):
    written(tmp_path, *call("Torch.a.0.forward", TENSOR), *call("Torch.b.0.forward"))
    lines = (tmp_path / "dump.json").read_text().splitlines()
    assert json.loads(lines[0].removesuffix(",") + "}") == HEADER
    assert lines[1] == '"data": {'
    assert [line.split(":")[0] for line in lines[2:4]] == ['"Torch.a.0.forward"', '"Torch.b.0.forward"']
    assert lines[4] == "}}"
    assert len(lines) == 5
    assert list(strict_file(tmp_path / "dump.json"))[-1] == "data"


def test_a_step_without_calls(tmp_path):
    report = written(tmp_path)
    assert strict_file(tmp_path / "dump.json") == {**HEADER, "data": {}}
    assert strict_file(tmp_path / "stack.json") == {}
    assert (report["records"], report["tensors"], report["norms"]) == (0, 0, [])


def test_without_extra_info_there_is_only_the_dump(tmp_path):
    written(tmp_path, *call("Torch.a.0.forward"), extra_info=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dump.json", "report.json"]


def test_the_report_counts_what_is_in_the_records_when_nobody_told_it(tmp_path):
    bad = {**TENSOR, "Norm": "NaN", "nan_count": 2, "data_name": "x.pt"}
    report = written(tmp_path, *call("Torch.a.0.forward", TENSOR, [bad]), dump_data_dir="x")
    assert report == strict_file(tmp_path / "report.json")
    assert (report["tensors"], report["tensor_files"]) == (3, 1)
    assert report["norms"][0][1] == 1.0
    assert report["first_non_finite"] == {"record": "Torch.a.0.forward", "slot": "output.1.0", "why": "2 NaN"}
    assert report["format_version"] == FORMAT_VERSION
    assert report["started"] <= report["ended"]


def test_the_report_takes_what_the_tally_tells(tmp_path):
    summary = {"norms": [["x", 9.0]], "first_non_finite": None}
    counts = {"seen": {"calls": 1}}
    tally = {"counts": counts, "not_seen": [{"what": "x", "why": "y"}], "summary": summary, "more": 1}
    report = written(tmp_path, *call("Torch.a.0.forward", TENSOR), {"k": "tally", "d": tally})
    assert (report["norms"], report["counts"], report["more"]) == ([["x", 9.0]], counts, 1)
    assert report["not_seen"] == [{"what": "x", "why": "y"}]
    assert report["unmatched"] == []
    assert report["tensors"] == 2


def test_tensors_are_counted_whatever_the_texts_beside_them(tmp_path):
    tricky = {"type": "str", "value": '"dtype":"x" "data_name":"y"'}
    keys = {"dtype": {"type": "str", "value": "dtype"}, '"dtype":"': None, "data_name": tricky}
    made = call("Torch.a.0.forward", tricky, keys, {**TENSOR, "data_name": "f.pt"})
    report = written(tmp_path, *made, dump_data_dir="x")
    assert (report["tensors"], report["tensor_files"]) == (2, 1)


def test_faults_have_a_log(tmp_path):
    written(tmp_path, *[{"k": "fault", "w": "here", "m": "Error: \udc80"}] * 3, final=False)
    assert "3 x here\nError: ?" in (tmp_path / "dump_error_info.log").read_text()
    assert strict_file(tmp_path / "report.json")["faults"][0]["count"] == 3


def test_stopping_again_with_nothing_new_writes_nothing(tmp_path):
    writer = RankWriter(tmp_path, HEADER)
    write_all(writer, call("Torch.a.0.forward"))
    writer.finish(final=False)
    before = {p.name: p.stat().st_ino for p in tmp_path.iterdir()}
    writer.finish(final=False)
    assert {p.name: p.stat().st_ino for p in tmp_path.iterdir()} == before
    writer.finish(final=True)  # dump.json and its siblings stay, too; only the report says something new
    after = {p.name: p.stat().st_ino for p in tmp_path.iterdir()}
    assert {name for name in before if after.get(name) != before[name]} == {"report.json", "records.journal"}


def test_a_new_file_replaces_the_old_one_whole_or_not_at_all(tmp_path, monkeypatch):
    writer = RankWriter(tmp_path, HEADER)
    write_all(writer, call("Torch.a.0.forward"))
    writer.finish(final=False)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    write_all(writer, call("Torch.b.0.forward"))
    opened = [(tmp_path / name).open("rb") for name in FILES]
    replaced = []
    real = os.replace

    def replace(source, target, **folders):
        if target == "stack.json":
            raise OSError(28, "disk full")
        replaced.append(target)
        assert json.loads((tmp_path / source).read_bytes())  # whole before it takes the name
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="disk full"):
        writer.finish(final=True)
    monkeypatch.undo()
    assert replaced == ["dump.json"]
    assert [f.read() for f in opened] == list(before.values())  # who reads the old file reads on
    assert (tmp_path / "stack.json").read_bytes() == before["stack.json"]
    assert not list(tmp_path.glob(".*.tmp"))
    (rank,) = open_dump(tmp_path).ranks
    assert rank.source == "journal"  # the files are of two times, so the journal counts
    assert len(rank.records) == 2
    writer.finish(final=True)
    assert len(strict_file(tmp_path / "dump.json")["data"]) == 2


def test_threads_and_the_journal_agree_on_the_order(tmp_path):
    writer = RankWriter(tmp_path, HEADER)

    def run(thread):
        for i in range(100):
            write_all(writer, call(f"Torch.t{thread}.{i}.forward", TENSOR))

    in_threads(run, *range(6))
    writer.finish(final=False)
    assert len(same_as_journal(tmp_path).data) == 600


def test_an_event_and_its_count_are_in_the_files_together(tmp_path, monkeypatch):
    writer, count = RankWriter(tmp_path, HEADER), Count()
    real, written, finished = os.write, threading.Event(), threading.Event()

    def write(fd, data):
        done = real(fd, data)
        if b"Torch.a.0.forward" in data and not written.is_set():
            written.set()
            finished.wait(0.2)  # the files would be there by then, if they were let
        return done

    monkeypatch.setattr(os, "write", write)
    reports = []

    def tally():
        return events.tally({"counts": {"recorded": {"calls": count.n}}})

    def finish():
        written.wait(30)
        reports.append(writer.finish(final=False, last=tally))
        finished.set()

    thread = threading.Thread(target=finish)
    thread.start()
    writer.append(events.enter("Torch.a.0.forward", None, "aw", (b"[]", b"{}")), count)
    thread.join()
    (report,) = reports
    assert (report["records"], report["counts"]["recorded"]["calls"]) == (1, 1)
    same_as_journal(tmp_path)


def test_text_that_utf_8_has_not_is_written_all_the_same(tmp_path):
    """File names from os.fsdecode, say, in the message of an exception."""
    enter, _ = call("Torch.b.0.forward")
    ended = {"k": "exit", "n": "Torch.b.0.forward", "e": "OSError: \udc80"}
    whole = call("Torch.a.0.forward", TENSOR, {"type": "int", "value": 2**70})
    written(tmp_path, *whole, enter, ended, final=False)
    same_as_journal(tmp_path)
    assert strict_file(tmp_path / "dump.json")["data"]["Torch.b.0.forward"]["raised"] == "OSError: \udc80"


@pytest.mark.parametrize("state", ["open", "complete", "recovered"])
def test_documents_are_written_as_given(tmp_path, state):
    documents = Documents(
        HEADER, {"Torch.a.0.forward": {"output": [None]}}, {}, {"Torch.a.0.forward": None}, {}, []
    )
    report = write_documents(tmp_path, documents, state=state, journal_bytes=5)
    assert (report["state"], report["journal"], report["started"]) == (state, {"bytes": 5}, None)
    blobs = bytes_of(documents)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == blobs


def test_construct_is_empty_at_l1():
    documents = Documents({"level": "L1"}, {}, {}, {"Torch.a.0.forward": None}, {}, [])
    assert bytes_of(documents)["construct.json"] == b"{}\n"
    assert bytes_of(Documents({}, {}, {}, {}, {}, []))["dump.json"] == b'{\n"data": {}}\n'


def test_a_late_writer_leaves_nothing_until_there_is_a_record(tmp_path):
    folder = tmp_path / "graph" / "step0" / "rank"
    writer = RankWriter(folder, HEADER, late=True)
    old(writer)({"k": "tally", "d": {}})
    assert writer.finish(final=False) == {} and not (tmp_path / "graph").exists()
    old(writer)({"k": "frames", "i": 0, "f": ["File a.py"]})
    old(writer)({"k": "enter", "n": "Cell.a.A.forward.0", "u": None, "a": [], "w": {}})
    kinds = [head["k"] for head, _ in read_journal(folder / "records.journal").events]
    assert kinds == ["head", "tally", "frames", "enter"]
    assert writer.finish(final=True)["records"] == 1


@pytest.mark.parametrize("kind", ["end", "close"])
def test_a_late_writer_without_a_record_never_was(tmp_path, kind):
    writer = RankWriter(tmp_path / "rank", HEADER, late=True)
    assert writer.finish(final=True) == {} if kind == "end" else writer.close() is None
    assert list(tmp_path.iterdir()) == [] and not writer.forked


def test_a_late_writer_keeps_a_fault(tmp_path):
    writer = RankWriter(tmp_path / "rank", HEADER, late=True)
    old(writer)({"k": "fault", "w": "x", "m": "y"})
    assert writer.finish(final=True)["faults"] == [{"where": "x", "message": "y", "count": 1}]


def test_a_late_directory_is_there_for_a_file_that_comes_before_its_record(tmp_path):
    writer = RankWriter(tmp_path / "step0" / "rank", {**HEADER, "dump_data_dir": "x"}, late=True)
    assert not (tmp_path / "step0").exists()
    writer.begin()
    writer.begin()
    assert writer.tensor_directory.is_dir()
    kinds = [head["k"] for head, _ in read_journal(writer.directory / "records.journal").events]
    assert kinds == ["head"]
    writer.close()


@pytest.mark.parametrize("left", [0, 8, 50, 120, 500])
@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_is_told_however_little_it_still_takes(tmp_path, left, late):
    writer = RankWriter(tmp_path / "step0" / "rank", HEADER, late=late)
    value = json.dumps([TENSOR]).encode()
    writer.append(events.enter("Torch.sin.0.forward", None, "aw", (value, b"{}")))
    size = (writer.directory / "records.journal").stat().st_size
    why = "[Errno 28] No space left on device: '/there/步'"
    with file_size_limit(size + left):
        writer.break_off(why)
        writer.append(events.exit("Torch.sin.0.forward", output=value))
    writer.close()
    told = [{"where": "recording", "message": f"it ended early: {why}"}]
    for _ in range(2):
        (rank,) = open_dump(tmp_path).ranks
        assert [{key: fault[key] for key in ("where", "message")} for fault in rank.faults] == told
        assert rank.records.names == ("Torch.sin.0.forward",) and rank.header == HEADER
        assert [each.outcome for each in recover(tmp_path)] == ["whole"]
