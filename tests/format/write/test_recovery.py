"""`probe recover`: from a journal to files, whole, in part, or not at all."""

import json
import os
import shutil
import struct
import zlib

import probe_format
import pytest
from corpus_cases import PROBE, copied, edit, ranks_of
from hypothesis import given
from hypothesis import strategies as st
from probe_format.cli.main import main as probe
from probe_format.journal import JournalWriter, events, read_journal
from probe_format.read.verify import verify
from probe_format.tensors import entries, entry_head
from probe_format.write import recover


def test_a_torn_dump_becomes_whole_and_stays_so(tmp_path):
    folder = copied(tmp_path, "torn")
    (before,) = probe_format.open(folder).ranks
    records = {record.name: record.json for record in before.records}
    (first,) = recover(folder)
    assert (first.outcome, first.records, first.tensors) == ("whole", 7, 15)
    assert verify(folder)[0].state == "recovered"
    (after,) = probe_format.open(folder).ranks
    assert after.source == "files" and after.report.state == "recovered"
    assert {record.name: record.json for record in after.records} == records
    files = {path.name: path.read_bytes() for path in folder.glob("*.json") if path.name != "report.json"}
    assert recover(folder)[0] == first
    assert {name: (folder / name).read_bytes() for name in files} == files


def test_a_call_that_was_cut_off_is_marked(tmp_path):
    folder = copied(tmp_path, "torn")
    recover(folder)
    (rank,) = probe_format.open(folder).ranks
    head = rank.records["Module.head.Linear.forward.0"].json
    assert head["incomplete"] is True and head["output"] == [] and len(head["input_args"]) == 1


def test_damage_in_the_middle_is_recovered_in_part(tmp_path):
    folder = copied(tmp_path, "damaged_journal")
    (recovery,) = recover(folder)
    assert recovery.outcome == "partial" and "checksum differs at byte" in recovery.detail
    (verdict,) = verify(folder)
    assert verdict.state == "recovered" and any("checksum differs" in note for note in verdict.notes)
    (rank,) = probe_format.open(folder).ranks
    assert "Torch.log.0.forward" not in rank.records  # the frame that was changed
    assert "Module.fc.Linear.backward.0" in rank.records  # what comes after it


@pytest.mark.parametrize("case", ["complete", "damaged_json"])
def test_without_a_journal_there_is_nothing_to_recover(tmp_path, case):
    folder = copied(tmp_path, case)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (recovery,) = recover(folder)
    assert recovery.outcome == "nothing" and "no journal" in recovery.detail
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_journal_that_a_finished_step_left_behind_is_not_touched(tmp_path):
    folder = copied(tmp_path, "complete")
    shutil.copy(PROBE / "torn" / "step0" / "rank" / "records.journal", folder)
    document = json.loads((folder / "report.json").read_bytes())
    document["journal"] = {"bytes": (folder / "records.journal").stat().st_size}
    (folder / "report.json").write_text(json.dumps(document))
    assert recover(folder)[0].outcome == "nothing"
    assert verify(folder)[0].state == "complete"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no record"),
        (b"PROBE", "no record"),
        (b"PROBEJ1\n", "no record"),
        (b"{}", "is not a Probe journal"),
    ],
)
def test_a_journal_with_nothing_in_it(tmp_path, raw, says):
    (tmp_path / "records.journal").write_bytes(raw)
    (recovery,) = recover(tmp_path)
    assert recovery.outcome == "nothing" and says in recovery.detail
    assert not (tmp_path / "dump.json").exists()


def test_an_event_of_a_newer_version_is_told(tmp_path):
    writer = JournalWriter(tmp_path / "records.journal", lambda *event: None)
    writer.append(events.head({}))
    writer.append(({"k": "enter", "call": "Torch.sin.0.forward"}, ()))
    writer.close()
    (recovery,) = recover(tmp_path)
    assert recovery.outcome == "nothing" and "install that version" in recovery.detail


def test_what_came_after_the_last_stop_is_counted(tmp_path):
    folder = copied(tmp_path, "torn")
    path = folder / "records.journal"
    path.write_bytes(path.read_bytes()[: read_journal(path).valid_bytes])
    writer = JournalWriter(path, lambda *event: None)
    summary = {"tensors": 1, "tensor_files": 1, "norms": [["x.output.0", 1.0]], "first_non_finite": None}
    writer.append(events.tally({"counts": {}, "summary": summary}))
    writer.append(events.enter("Torch.cos.0.forward", None, "aw", (b"[]", b"{}")))
    writer.close()
    assert recover(folder)[0].tensors == 15
    (verdict,) = verify(folder)
    assert verdict.state == "recovered", verdict.problems
    (rank,) = probe_format.open(folder).ranks
    assert rank.report.first_non_finite["record"] == "Torch.log.0.forward"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    folder = copied(tmp_path, "torn")
    folder.chmod(0o500)
    with pytest.raises(OSError, match="denied"):
        recover(folder)


def test_each_rank_is_recovered(tmp_path):
    ranks_of(tmp_path, "torn", "complete", "damaged_journal")
    assert [recovery.outcome for recovery in recover(tmp_path)] == ["whole", "nothing", "partial"]


@given(data=st.data())
def test_a_journal_cut_anywhere_keeps_every_whole_event(tmp_path_factory, data):
    whole = (PROBE / "torn" / "step0" / "rank" / "records.journal").read_bytes()
    cut = data.draw(st.integers(8, len(whole)))
    folder = tmp_path_factory.mktemp("cut")
    (folder / "records.journal").write_bytes(whole[:cut])
    try:
        (recovery,) = recover(folder)
        # Each enter event that is whole in the bytes has its record.
        entered, at = 0, 8
        while at + 8 <= cut and at + 8 + int.from_bytes(whole[at : at + 4], "little") <= cut:
            size = int.from_bytes(whole[at : at + 4], "little")
            entered += b'"k":"enter"' in whole[at + 8 : at + 8 + size]
            at += 8 + size
        if recovery.outcome == "nothing":
            assert entered == 0
            return
        (rank,) = probe_format.open(folder).ranks
        assert sum(record.kind == "forward" for record in rank.records) == entered
        problems = [p for p in verify(folder)[0].problems if "its file" not in p]
        assert not problems
    finally:
        shutil.rmtree(folder)


def packed(tmp_path, case="packed"):
    """A copy of a dump with a pack: its rank folder, the pack, and the entries."""
    rank = copied(tmp_path, case)
    return rank, rank / "dump_tensor_data" / "000.pack", entries(rank / "dump_tensor_data")


def unpacked(rank, capsys):
    """Unpack, and return the exit code, what was printed, and the files that are there then."""
    code = probe(["unpack", str(rank)])
    return code, capsys.readouterr().out, {path.name for path in (rank / "dump_tensor_data").iterdir()}


def heads(raw):
    """The name of each entry, and where its head begins."""
    at = 0
    while at < len(raw):
        size, _, length, _ = struct.unpack_from("<QIHH", raw, at + 8)
        yield raw[at + 24 : at + 24 + length].decode(), at
        end = at + 24 + length
        at = end + -end % 64 + size


@pytest.mark.parametrize("number", range(5))
def test_a_damaged_head_keeps_the_pack_and_its_tensors_are_named(tmp_path, capsys, number):
    rank, pack, whole = packed(tmp_path)
    raw = bytearray(pack.read_bytes())
    name, at = list(heads(raw))[number]
    raw[at + 16] ^= 1
    pack.write_bytes(raw)
    code, said, files = unpacked(rank, capsys)
    lost = whole.keys() - entries(pack.parent).keys()
    assert code == 4 and name in lost and pack.read_bytes() == raw
    assert all(f"{each} is missing" in said for each in lost)
    assert files == {"000.pack", *whole} - lost
    assert unpacked(rank, capsys) == (code, said, files)  # it can be run again


@pytest.mark.parametrize("cut", [1, 100, 2000, 5000])
def test_a_pack_that_was_cut_stays(tmp_path, capsys, cut):
    rank, pack, whole = packed(tmp_path)
    raw = pack.read_bytes()[:-cut]
    pack.write_bytes(raw)
    code, said, files = unpacked(rank, capsys)
    lost = whole.keys() - entries(pack.parent).keys()
    assert code == 4 and lost and pack.read_bytes() == raw
    assert all(f"{each} is missing" in said for each in lost)
    assert files == {"000.pack", *whole} - lost


def test_half_an_entry_that_a_kill_left_goes(tmp_path, capsys):
    rank, pack, whole = packed(tmp_path, "packed_torn")
    shutil.copy(PROBE / "packed" / "step0" / "rank" / "dump.json", rank)
    for path in (rank, rank / "dump.json"):
        assert probe(["unpack", str(path)]) == 1 and pack.exists()
    assert probe(["recover", str(rank)]) == 0
    code, _, files = unpacked(rank, capsys)
    assert (code, files) == (0, {*whole})
    assert verify(rank)[0].state == "recovered"


def test_a_pack_of_a_killed_run_without_a_whole_entry_is_no_success(tmp_path, capsys):
    rank, pack, _ = packed(tmp_path, "packed_torn")
    pack.write_bytes(pack.read_bytes()[:40])
    assert unpacked(rank, capsys)[0] == 1 and pack.exists()


def test_a_rank_that_is_not_unpacked_keeps_no_other_from_it(tmp_path, capsys):
    goes_on, whole = (
        packed(tmp_path / name, case)[0] for name, case in (("0", "packed_torn"), ("1", "packed"))
    )
    step = tmp_path / "step0"
    for number, rank in enumerate((goes_on, whole)):
        shutil.move(rank, step / f"rank{number}")
    assert probe(["unpack", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert (
        "step0/rank1" in out and "step0/rank0/records.journal is of a run that goes on or was killed" in err
    )
    packs = [(step / f"rank{number}" / "dump_tensor_data" / "000.pack").exists() for number in range(2)]
    assert packs == [True, False]


def test_bytes_between_entries_keep_a_pack(tmp_path, capsys):
    rank, pack, whole = packed(tmp_path)
    raw = bytearray(pack.read_bytes())
    stray = bytes(64)
    more = raw + stray
    more += entry_head(len(more), "x.pt", 3, zlib.crc32(b"abc")) + b"abc"
    pack.write_bytes(more)
    code, said, files = unpacked(rank, capsys)
    assert code == 4 and f"{pack} has bytes between its entries that are none." in said
    assert files == {"000.pack", "x.pt", *whole} and pack.read_bytes() == more


def test_an_entry_that_its_record_does_not_mean_keeps_the_pack(tmp_path, capsys):
    """The head of a value that was saved anew is damaged: the value before it is not what the record is of."""
    rank, pack, whole = packed(tmp_path)
    name = next(iter(whole))
    raw = bytearray(entry_head(0, name, 3, zlib.crc32(b"old")) + b"old")
    raw += bytes(-len(raw) % 64)
    at = len(raw)
    raw += pack.read_bytes()
    raw[at + 16] ^= 1
    pack.write_bytes(raw)
    code, said, files = unpacked(rank, capsys)
    assert code == 4 and f"{name} was changed" in said and name not in files and "000.pack" in files


def test_a_record_that_cannot_be_read_keeps_the_pack(tmp_path, capsys):
    rank, _, whole = packed(tmp_path)
    edit(rank, "dump.json", b'"data_name":"', b'"data_name":"../')
    code, said, files = unpacked(rank, capsys)
    assert code == 4 and "is not a file name" in said and files == {"000.pack", *whole}
