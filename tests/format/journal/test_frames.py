"""The journal after kills, flipped bytes, full disks and concurrent writers."""

import errno
import os
import struct
import sys
import zlib
from functools import partial

import pytest
from at_once import forked, in_threads
from crafted_journal import frame as framed
from full_disk import file_size_limit
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.errors import FormatError
from probe_format.journal import MAGIC, JournalWriter, frames, read_journal

#: Texts and nested objects, some of which look like frames themselves.
EVENTS = [
    {"k": "", "n": None},
    {"k": '{"k":"a"}', "n": [2**70, -(2**63), '{"k"']},
    {"k": "\x00é\udc80", "n": {"k": {"n": []}, "n": "}"}},
    {"k": "a", "n": "ab" * 6},
]


def frame(event):
    return framed(jsonio.dumps(event))


def writer_of(path):
    """A writer of events that have no values."""
    writer = JournalWriter(path, lambda *event: None)
    append = writer.append
    writer.append = lambda event: append((event, ()))
    return writer


def heads(found):
    assert all(not values for _, values in found.events)
    return [head for head, _ in found.events]


def log(events):
    return MAGIC + b"".join(map(frame, events))


def ends(events):
    """Where the header and each frame end."""
    out = [len(MAGIC)]
    for event in events:
        out.append(out[-1] + len(frame(event)))
    return out


class InMemory:
    """A path whose file is these bytes: some tests read thousands of journals."""

    def __init__(self, data):
        self.read_bytes = lambda: data


def read(data):
    return read_journal(InMemory(data))


def test_what_is_appended_is_read(tmp_path):
    path = tmp_path / "records.journal"
    writer = writer_of(path)
    for event in EVENTS:
        writer.append(event)
    assert path.read_bytes() == log(EVENTS)  # the spec's bytes, packed by hand above
    assert writer.size == path.stat().st_size
    writer.close()
    writer.close()
    found = read_journal(path)
    assert heads(found) == EVENTS
    assert (found.state, found.valid_bytes, found.file_bytes) == ("whole", len(log(EVENTS)), len(log(EVENTS)))


def test_cut_at_every_byte_is_torn_with_exactly_the_whole_frames_before():
    data, borders = log(EVENTS), ends(EVENTS)
    for cut in range(len(data) + 1):
        found = read(data[:cut])
        whole = sum(border <= cut for border in borders[1:])
        assert heads(found) == EVENTS[:whole], cut
        assert found.state == ("whole" if cut in borders else "torn"), cut
        assert found.file_bytes == cut
        assert found.valid_bytes == (borders[whole] if cut >= borders[0] else 0)
        assert bool(found.detail) == (found.state == "torn")


@pytest.mark.parametrize("mask", [1, 0x20, 0x80, 0xFF])
def test_a_flipped_byte_costs_at_most_its_own_frame(mask):
    data, borders = log(EVENTS), ends(EVENTS)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= mask
        found = read(bytes(changed))
        assert found.state == "damaged", at
        hit = sum(border <= at for border in borders)  # 0: the header, n: frame n-1
        left = EVENTS if hit == 0 else EVENTS[: hit - 1] + EVENTS[hit:]
        assert heads(found) == left, at
        assert found.detail


def test_two_damages_are_both_told_and_reading_goes_on():
    events = [{"k": "a", "n": i} for i in range(6)]
    data, borders = bytearray(log(events)), ends(events)
    data[borders[1] + 9] ^= 1
    data[borders[4] + 9] ^= 1
    found = read(bytes(data))
    assert [e["n"] for e in heads(found)] == [0, 2, 3, 5]
    assert found.detail.count("checksum differs") == 2


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 20,
        b"\xff" * 20,
        b'{"k":"x"}',
        frame({"n": 1}),
        frame([1]),
        frame({"k": 1}),
        struct.pack("<II", 3, zlib.crc32(b"{,}")) + b"{,}",
    ],
)
def test_junk_between_frames_is_damage_and_skipped(junk):
    found = read(log([{"k": "a"}]) + junk + frame({"k": "b"}))
    assert [e["k"] for e in heads(found)] == ["a", "b"]
    assert found.state == "damaged"


def test_zeros_at_the_end_are_damage():
    found = read(log([{"k": "a"}]) + bytes(100))
    assert (found.state, len(found.events)) == ("damaged", 1)


@pytest.mark.parametrize("data", [b"{}", b"PROBEJ3\n", b"x" * 100, MAGIC[:-1] + b"x", b"\0" * 64])
def test_another_file_is_no_journal(data):
    with pytest.raises(FormatError, match="not a Probe journal"):
        read(data)


@given(st.binary(max_size=80))
def test_any_bytes_after_the_header_read_without_fault(junk):
    found = read(log([{"k": "a"}]) + junk)
    assert heads(found)[0] == {"k": "a"}
    assert found.valid_bytes <= found.file_bytes


def test_a_missing_journal_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_journal(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        writer_of(tmp_path / "none" / "j")


def write_many(writer, number):
    for i in range(300):
        writer.append({"k": "a", "t": number, "i": i, "fill": "x" * (i * 7 % 300)})


def all_are_there(path, writers):
    found = read_journal(path)
    assert found.state == "whole"
    for number in range(writers):
        assert [e["i"] for e in heads(found) if e["t"] == number] == list(range(300))


def test_threads_write_whole_frames_each_in_its_order(tmp_path):
    writer = writer_of(tmp_path / "j")
    in_threads(partial(write_many, writer), *range(8))
    writer.close()
    all_are_there(tmp_path / "j", 8)


def test_processes_write_whole_frames_each_in_its_order(tmp_path):
    path = tmp_path / "j"
    writer_of(path).close()
    go, gone = os.pipe()

    def write(number):
        writer = writer_of(path)
        os.close(gone)
        os.read(go, 1)  # until the other end is closed
        write_many(writer, number)

    children = [forked(write, number) for number in range(3)]
    os.close(gone)
    os.close(go)
    for ended in children:
        ended()
    all_are_there(path, 3)


def test_a_write_cut_short_leaves_whole_frames_and_says_why(tmp_path):
    path = tmp_path / "j"
    writer = writer_of(path)
    writer.append({"k": "first"})
    before = writer.size
    event = {"k": "second", "n": "x" * 40}
    for room in range(len(frame(event))):
        with file_size_limit(before + room), pytest.raises(OSError, match="arge") as error:
            writer.append(event)
        assert error.value.errno == errno.EFBIG
        assert writer.size == before, room
        assert read_journal(path).state == "whole"
    with file_size_limit(before + len(frame(event))):
        writer.append(event)
    found = read_journal(path)
    assert (found.state, len(found.events)) == ("whole", 2)


def test_a_short_write_that_can_go_on_goes_on(tmp_path, monkeypatch):
    writer = writer_of(tmp_path / "j")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    writer.append({"k": "a", "n": "x" * 50})
    monkeypatch.undo()
    writer.append({"k": "b"})
    found = read_journal(tmp_path / "j")
    assert (found.state, [e["k"] for e in heads(found)]) == ("whole", ["a", "b"])


def test_an_event_that_no_reader_would_take_is_refused(tmp_path, monkeypatch):
    writer = writer_of(tmp_path / "j")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="too large"):
        patch.setattr(frames, "MAX_FRAME", 5)
        writer.append({"k": "a"})
    writer.append({"k": "b"})
    assert [e["k"] for e in heads(read_journal(tmp_path / "j"))] == ["b"]


def test_an_event_that_is_no_json_writes_nothing(tmp_path):
    writer = writer_of(tmp_path / "j")
    with pytest.raises(TypeError):
        writer.append({"k": "a", "n": object()})
    assert writer.size == len(MAGIC)


def test_a_forked_copy_knows_that_it_is_one(tmp_path, monkeypatch):
    writer = writer_of(tmp_path / "j")
    assert not writer.forked
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert writer.forked


def test_a_time_out_that_comes_as_an_event_is_written_reaches_the_run(tmp_path):
    def look(frame, event, called):
        if event == "c_call" and called is os.lseek:
            raise TimeoutError

    writer = writer_of(tmp_path / "j")
    sys.setprofile(look)
    try:
        with pytest.raises(TimeoutError):
            writer.append(EVENTS[0])
    finally:
        sys.setprofile(None)
    writer.append(EVENTS[1])
    assert heads(read_journal(tmp_path / "j")) == [EVENTS[1]]
