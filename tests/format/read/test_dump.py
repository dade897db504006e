"""`probe_format.open`: every dump there is, by Probe and by msprobe."""

import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import probe_format
import pytest
from corpus_cases import CORPUS, EXPECTED, PROBE, copied, tensor_in
from probe_format import DamagedError, FormatError
from probe_format.cli.show import tree
from probe_format.errors import UsageError
from probe_format.schema import others, why_lost

COMPLETE = PROBE / "complete"


@pytest.mark.parametrize("where", EXPECTED)
def test_the_corpus_opens(where):
    rank = probe_format.open(CORPUS / where).ranks[0]
    if EXPECTED[where]["records"] is None:
        with pytest.raises(FormatError, match="cut short"):
            list(rank.records)
        return
    records = list(rank.records)
    assert len(records) == len(rank.records) == EXPECTED[where]["records"]
    tensors = [tensor.json for record in records for tensor in record.tensors]
    assert len(tensors) == EXPECTED[where]["tensors"]
    assert sum("unsupported" in tensor for tensor in tensors) == EXPECTED[where].get("unsupported", 0)
    leaves = [leaf for record in records for _, leaf in others(record.json)]
    lost = EXPECTED[where].get("lost", 0)
    assert sum(bool(why_lost(leaf)) for leaf in leaves) == lost
    assert sum(not each.known for record in records for each in rank.lost.of(record.name)) == lost
    assert all(record.parsed for record in records)
    assert rank.header["framework"] in ("pytorch", "mindspore", "mindtorch")
    for record in records:
        assert record.kind in ("forward", "backward", "parameters_grad", "debug")
        assert record.parent is None or record.parent in rank.construct
        assert isinstance(record.stack, tuple)
        for tensor in record.tensors:
            assert tensor.norm is None or isinstance(tensor.norm, bool | int | float)
            if tensor.file is not None and tensor.file.suffix == ".npy" and tensor.file.is_file():
                assert tensor.load().shape == tensor.shape


def test_a_dump_opens_at_every_level():
    ddp = CORPUS / "torch" / "ddp_mix" / "dump"
    dump = probe_format.open(ddp)
    assert [step.number for step in dump.steps] == [0]
    assert [rank.number for rank in dump.steps[0].ranks] == [0, 1]
    assert dump.step(0).rank(1).path == ddp / "step0" / "rank1"
    assert [rank.number for rank in probe_format.open(ddp / "step0").ranks] == [0, 1]
    (rank,) = probe_format.open(ddp / "step0" / "rank1").ranks
    assert (rank.step, rank.number) == (0, 1)
    (rank,) = probe_format.open(ddp / "step0" / "rank1" / "dump.json").ranks
    assert (rank.step, rank.number, len(rank.records)) == (0, 1, len(rank.records))
    with pytest.raises(KeyError, match=r"no step 3; it has \[0\]"):
        dump.step(3)
    with pytest.raises(KeyError, match=r"no rank 2; it has \[0, 1\]"):
        dump.step(0).rank(2)


def test_a_tensor_and_its_records_say_what_they_are():
    (rank,) = probe_format.open(COMPLETE).ranks
    (record,) = (r for r in rank.records if r.name == "Functional.linear.0.forward")
    said = repr(record.tensors[0])
    assert said.startswith("<Functional.linear.0.forward.input_args.0: torch.float32[2, 2], Max ")
    assert "Norm 5.477" in said and "json" not in said
    assert repr(rank.records) == f"<{len(rank.records)} records of {rank.path}>"
    broken = attrs.evolve(record.tensors[0], json={"shape": 3})
    assert "None[?]" in repr(broken)


@pytest.mark.parametrize("wrong", [None, 3, ["dump"], {"a": 1}], ids=str)
def test_what_is_no_path_is_told(wrong):
    with pytest.raises(UsageError, match="path of a dump"):
        probe_format.open(wrong)


def test_a_lookup_with_the_wrong_kind_is_told():
    dump = probe_format.open(COMPLETE)
    with pytest.raises(KeyError, match="no step '0'; it has"):
        dump.step("0")
    with pytest.raises(KeyError, match="by name, not by 0"):
        dump.ranks[0].records[0]


def test_the_ranks_of_a_dump_are_a_tuple_like_those_of_a_step():
    dump = probe_format.open(COMPLETE)
    assert dump.ranks == dump.steps[0].ranks and len(dump.ranks) == len(dump.ranks[:]) == 1


def test_a_relative_path_knows_its_step(monkeypatch):
    monkeypatch.chdir(COMPLETE / "step0" / "rank")
    (rank,) = probe_format.open(".").ranks
    assert (rank.step, rank.number) == (0, None)


def test_what_is_no_dump_says_where_dumps_are(tmp_path):
    copied(tmp_path, to="run/dump")
    with pytest.raises(FormatError, match=f"is not a dump.*There are dumps in it: {tmp_path}/run/dump"):
        probe_format.open(tmp_path)
    with pytest.raises(FormatError, match=r"does not exist\. Did you mean .*/run/dump\?"):
        probe_format.open(tmp_path / "run" / "dumb")
    (tmp_path / "empty" / "step0" / "rank0").mkdir(parents=True)
    with pytest.raises(FormatError, match="holds nothing: the run ended before"):
        probe_format.open(tmp_path / "empty")
    (tmp_path / "empty" / "step0" / "rank0" / "dump_tensor_data").mkdir()
    for path in ("empty", "empty/step0", "empty/step0/rank0"):
        (rank,) = probe_format.open(tmp_path / path).ranks
        assert rank.is_empty and not list(rank.records) and (rank.step, rank.number) == (0, 0)
    for left in (
        "stack.json",
        "dump_tensor_data/Module.fc.Linear.forward.0.output.0.npy",
    ):  # they go with records
        (rank.path / left).write_text("{}")
        (rank,) = probe_format.open(tmp_path / "empty").ranks
        with pytest.raises(FormatError, match=r"neither a dump\.json nor a debug\.json"):
            list(rank.records)
        (rank.path / left).unlink()


def test_records_and_tensors_give_what_is_in_them():
    (rank,) = probe_format.open(COMPLETE).ranks
    assert rank.header["level"] == "mix" and rank.report.state == "complete" and rank.source == "files"
    record = rank.records["Module.fc.Linear.forward.0"]
    assert record.kind == "forward" and record.parsed.cls == "Linear" and record.parent is None
    assert record.stack == ("File /home/user/train.py, line 23, in forward, \n x = self.fc(x)",)
    assert rank.records["Functional.linear.0.forward"].parent == record.name
    assert [t.slot for t in record.tensors] == [
        "input_args.0",
        "output.0",
        "parameters.weight",
        "recompute.input_args.0",
        "recompute.output.0",
    ]
    x = record.tensor("input_args.0")
    assert (x.shape, x.dtype, x.type, x.requires_grad) == ((2, 2), "torch.float32", "torch.Tensor", False)
    assert (x.max, x.min, x.mean) == (4.0, 1.0, 2.5) and x.norm == pytest.approx(30**0.5)
    assert x.name == "Module.fc.Linear.forward.0.input_args.0" and x.non_finite == ""
    bad = rank.records["Torch.log.0.forward"].tensor("input_args.0")
    assert np.isnan(bad.max) and bad.non_finite == "1 NaN, 1 +Inf" and bad.statistic("finite_max") == -1.0
    assert rank.records["Torch.log.0.forward"].json["raised"] == "ValueError: no logarithm today"
    with pytest.raises(KeyError, match=r"Did you mean .*Module\.fc\.Linear\.forward\.0"):
        rank.records["Module.fc.Linear.forward.1"]
    with pytest.raises(KeyError, match=r"it has \['input_args\.0'"):
        record.tensor("input.0")


def test_a_saved_value_of_level_debug_is_a_record():
    (rank,) = probe_format.open(CORPUS / "torch" / "misc_debug_tensor" / "dump").ranks
    record = rank.records["nest.0.debug"]
    assert record.kind == "debug"
    assert [tensor.slot for tensor in record.tensors][:1] == ["a"]
    assert rank.records["h.0.debug"].tensors[0].name == "h.0.debug"
    assert rank.records["int.0.debug"].tensors == ()


def test_npy_loads_and_pt_loads_with_torch(tmp_path):
    (rank,) = probe_format.open(COMPLETE).ranks
    record = rank.records["Module.fc.Linear.forward.0"]
    assert np.array_equal(record.tensor("parameters.weight").load(), np.eye(2, dtype=np.float32))
    torch = pytest.importorskip("torch")
    x = record.tensor("input_args.0")
    assert np.array_equal(x.load(), [[1, 2], [3, 4]])
    assert torch.equal(x.load_torch(), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    with pytest.raises(FormatError, match=r"use load\(\)"):
        record.tensor("parameters.weight").load_torch()


def rank_with(tmp_path, tensor):
    """A rank of one record with one tensor."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **tensor}
    return tensor_in(tmp_path, tensor)


def test_a_sum_of_several_slots_names_the_others(tmp_path):
    tensor = rank_with(tmp_path, {"shared_with": ["output.1", "output.2"]})
    assert tensor.shared_with == ("output.1", "output.2")
    (line,) = [line for line in tree(tensor.record.rank) if "float32" in line]
    assert line.endswith("one sum with output.1, output.2")


@pytest.mark.parametrize("wrong", [None, "output.1", 3, {}])
def test_a_file_that_shares_nonsense_shares_nothing(tmp_path, wrong):
    assert rank_with(tmp_path, {"shared_with": wrong}).shared_with == ()


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex32", "float16", "uint16"]
)
def test_dtypes_that_numpy_has_not_come_exactly(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    values = torch.tensor([0.5, 2.0]).to(getattr(torch, dtype)) if dtype != "uint16" else torch.tensor([0, 2])
    tensor = rank_with(tmp_path, {"data_name": "x.pt"})
    torch.save(values, tmp_path / "dump_tensor_data" / "x.pt")
    assert np.array_equal(tensor.load(), [0 if dtype == "uint16" else 0.5, 2.0])


def test_the_bytes_of_complex32_come_as_complex64(tmp_path):
    torch = pytest.importorskip("torch")
    tensor = rank_with(tmp_path, {"data_name": "x.pt", "dtype": "torch.complex32"})
    torch.save(torch.tensor([0.5, 1, -2, 4], dtype=torch.float16).view(torch.uint8), tensor.file)
    assert np.array_equal(tensor.load(), np.array([0.5 + 1j, -2 + 4j], np.complex64))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({}, "use task 'tensor'"),
        ({"shape": [0, 3]}, "it has no elements"),
        ({"lost": "disk full"}, "disk full"),
    ],
)
def test_what_is_not_there_says_why(tmp_path, keys, why):
    tensor = rank_with(tmp_path, keys)
    with pytest.raises(FormatError, match=f"was not saved to a file: {why}"):
        tensor.load()


def test_a_missing_file_and_a_short_file_are_damage(tmp_path):
    tensor = rank_with(tmp_path, {"data_name": "x.npy"})
    with pytest.raises(DamagedError, match=r"its file .*x\.npy is missing"):
        tensor.load()
    np.save(tensor.file, np.zeros(2))
    tensor.file.write_bytes(tensor.file.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"x\.npy is not a whole"):
        tensor.load()


def test_asking_whether_a_record_is_there_does_not_read_it(tmp_path):
    folder = copied(tmp_path)
    file = folder / "dump.json"
    file.write_bytes(file.read_bytes().replace(b'"Torch.log.0.forward": {', b'"Torch.log.0.forward": ['))
    records = probe_format.open(folder).ranks[0].records
    assert "Torch.log.0.forward" in records
    assert "Torch.log.1.forward" not in records
    with pytest.raises(DamagedError):
        assert records["Torch.log.0.forward"].json


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "", 3, "a\0b"])
def test_a_name_that_leaves_the_dump_is_refused(tmp_path, name):
    with pytest.raises(FormatError, match="is not a file name"):
        rank_with(tmp_path, {"data_name": name}).load()


def test_a_dump_that_was_moved_finds_its_files(tmp_path):
    (rank,) = probe_format.open(copied(tmp_path)).ranks
    tensor = rank.records["Module.fc.Linear.forward.0"].tensor("parameters.weight")
    assert tensor.file.is_relative_to(tmp_path)
    assert tensor.load().shape == (2, 2)


@pytest.mark.parametrize(
    ("case", "source", "records"),
    [("complete", "files", 8), ("open", "files", 8), ("recovered", "files", 7), ("torn", "journal", 7)],
)
def test_the_records_of_a_killed_run_come_from_its_journal(case, source, records):
    (rank,) = probe_format.open(PROBE / case).ranks
    assert rank.source == source
    assert len(rank.records) == records
    assert rank.records["Module.fc.Linear.forward.0"].stack
    assert rank.construct.parents["Functional.linear.0.forward"] == "Module.fc.Linear.forward.0"


def test_a_journal_that_has_grown_is_read_instead_of_the_files(tmp_path):
    folder = copied(tmp_path, "torn")
    for name in ("dump.json", "report.json"):
        shutil.copy(PROBE / "recovered" / "step0" / "rank" / name, folder)
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    assert rank.source == "files"
    with (folder / "records.journal").open("ab") as journal:
        journal.write(b"x")
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    assert rank.source == "journal" and len(rank.records) == 7


def test_reading_needs_no_framework_and_no_writer():
    code = (
        "import sys, probe_format as p\n"
        f"[t.norm for r in p.open({str(COMPLETE)!r}).ranks for c in r.records for t in c.tensors]\n"
        "print([m for m in ('torch', 'mindspore', 'jsonschema', 'probe_format.write.rank_writer') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": SOURCE}
    )
    assert done.stdout.strip() == "[]", done.stderr


SOURCE = str(Path(probe_format.__file__).parents[1])
