"""What is kept of the records of many ranks: all that they say, in less memory than their files."""

from __future__ import annotations

import gc
import itertools
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import plain_dump
import probe_analysis
import pytest
from probe_analysis import ranks
from probe_analysis.calls.compact_run import CompactRun, Shared
from probe_analysis.calls.run import runs_of
from probe_format.errors import DamagedError, FormatError
from probe_format.schema import Parts
from rank_dumps import write


def said(parts: Parts) -> str:
    """The parts as text, in which NaN is equal to itself."""
    values = [(v.slot, v.side, sorted(v.tensor.items())) for v in parts.values]
    return repr((values, parts.others))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two ranks with the same calls and other numbers, and a third with fewer calls."""
    for rank in range(3):
        records = plain_dump.records(random.Random(rank), 0, rank)
        odd: dict[str, Any] = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [2]}
        records["Tensor.sort.0.forward"] = {
            "input_args": [
                {**odd, "Max": rank, "Min": 0, "Mean": 0.5, "Norm": None},
                {**odd, "md5": f"{rank:08x}"},
            ],
            "input_kwargs": {"by": odd, "eps": {"type": "float", "value": float("nan")}},
            "output": [{**odd, "dtype": "torch.bool", "Max": True, "Min": False, "Mean": None, "Norm": None}],
        }
        if rank == 2:
            del records["Functional.layer_norm.0.forward"]
        write(tmp_path, rank, records, framework="pytorch", dump_data_dir=None)
    return tmp_path


def test_nothing_of_a_record_is_lost(dump: Path) -> None:
    shared = Shared()
    plain = list(runs_of(dump))
    compact = [CompactRun.of(run, shared, among=True) for run in plain]
    assert compact[0].calls is compact[1].calls and compact[0].calls is not compact[2].calls
    for whole, run in zip(plain, compact, strict=True):
        assert [call.name for call in run.calls] == [call.name for call in whole.calls]
        for call, other in zip(run.calls, whole.calls, strict=True):
            assert said(run.read(call)) == said(other.read())
            assert run.ended_inside(call) is False
            assert len(run.form(call).keywords) == len(other.record.json.get("input_kwargs", ()))
    with pytest.raises(KeyError, match="does not make"):
        compact[0].read(compact[2].calls[-1])


def test_nothing_of_a_table_is_lost(dump: Path, tmp_path: Path) -> None:
    """A further rank with the same calls takes only its numbers from its tables, of integers and flags as well."""
    for rank, norm in (
        (3, None),
        (4, 2.5),
        (5, float("nan")),
    ):  # where there is no number, and where there is one
        records = plain_dump.records(random.Random(rank), 0, rank)
        odd: dict[str, Any] = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [2]}
        records["Tensor.sort.0.forward"] = {
            "input_args": [{**odd, "Max": rank, "Min": -rank, "Mean": 0.5, "Norm": norm}],
            "input_kwargs": {},
            "output": [
                {**odd, "dtype": "torch.bool", "Max": True, "Min": rank < 4, "Mean": None, "Norm": None}
            ],
        }
        records["Tensor.any.0.forward"] = {
            "input_args": [
                {**odd, "dtype": "torch.bool", "Max": rank < 5, "Min": False, "Mean": 0.5, "Norm": 1.0}
            ],
            "input_kwargs": {"dim": {"type": "int", "value": rank // 4}},
            "output": [{**odd, "Max": 2**40 + rank, "Min": 7, "Mean": 3.5, "Norm": 4.0}],
        }
        quantised = {**odd, "dtype": "torch.qint8", "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
        records["Tensor.dequantize.0.forward"] = {
            "input_args": [{**quantised, "Max": 3.5 if rank == 4 else 3}],
            "input_kwargs": {},
            "output": [
                {**odd, "Max": 3, "Min": 0, "Mean": 0.5, "Norm": 1.0} | ({"md5": "0a"} if rank == 4 else {})
            ],
        }
        write(dump, rank, records, framework="pytorch", dump_data_dir=None)
    probe_analysis.export(dump, tmp_path / "tables")
    shared = Shared()
    for run in runs_of(tmp_path / "tables"):
        own = CompactRun.of(run, shared, among=True)
        (same,) = (each for each in runs_of(tmp_path / "tables") if each.label == run.label)
        for call, other in zip(own.calls, same.calls, strict=True):
            assert said(own.read(call)) == said(other.read()), (run.label, call.name)


def lines(folder: Path, records: dict[str, str]) -> Path:
    """Write a dump as Probe does: a line each. records: name -> JSON."""
    folder.mkdir(parents=True)
    head = (
        '{"task":"statistics","level":"L1","framework":"pytorch","dump_data_dir":null,"format_version":"1.0",'
    )
    text = ",\n".join(f'"{name}": {record}' for name, record in records.items())
    (folder / "dump.json").write_text(f'{head}"tool":"x","rank":null,"step":0,\n"data": {{\n{text}\n}}}}\n')
    return folder


_HEAD = '{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],'
_FLOATS = '"Max":%s,"Min":-1.5,"Mean":1e-8,"Norm":2.5E+0,'
_TENSORS = (
    *(_HEAD + _FLOATS % x + '"requires_grad":false}' for x in ("1.5", "-0.0", "2.0")),
    *(
        _HEAD + _FLOATS % "1.5" + f'"md5":"{x}","data_name":"{x}.pt"}}'
        for x in ("01234567", "é", "a\\u0062", "")
    ),
    _HEAD + '"md5":"7","Max":1.5,"Min":-1.5,"Mean":1e-8,"Norm":2.5,"data_name":"b"}',  # in another order
    _HEAD + '"Max":1,"Min":-1,"Mean":0.5,"Norm":null}',
    _HEAD + '"Max":NaN,"Min":1.5,"Mean":1.5,"Norm":1.5,"nan_count":1,"posinf_count":0,"neginf_count":0}',
    '{"type":"str","value":"\\"Max\\":1.5,\\"Min\\":1.5,\\"Mean\\":1.5,\\"Norm\\":1.5"}',
)


def test_nothing_of_a_line_is_lost(tmp_path: Path) -> None:
    """A text that differs in numbers alone is parsed once; each of these comes twice, beside another one."""
    records = {}
    for n, (x, y) in enumerate(itertools.product(_TENSORS, repeat=2)):
        again = f',"recompute":{{"output":[{y}]}},"label":"{n % 3}"'
        records[f"Tensor.add.{n}.forward"] = (
            f'{{"input_args":[{x},{y}],"output":[{y}]{again if n % 2 else ""}}}'
        )
    (run,) = runs_of(lines(tmp_path / "step0" / "rank", records))
    shared = Shared()
    compact = CompactRun.of(run, shared)
    assert len(shared.known) > 10
    for call in compact.calls:
        assert said(compact.read(call)) == said(call.read()), call.name
        assert {k: v for k, v in compact.form(call).marks.items() if k == "label"} == {
            k: v for k, v in call.record.json.items() if k == "label"
        }


def test_a_line_that_is_damaged_is_said(tmp_path: Path) -> None:
    """Bytes that were never written are zero, which stand for nothing else."""
    good = f'{{"input_args":[{_TENSORS[0]}],"output":[{_TENSORS[3]}]}}'
    for n, (old, new) in enumerate([("01234567", "0123\0"), (_FLOATS % "1.5", "\0,"), ("false", "fals")]):
        folder = lines(
            tmp_path / str(n), {"Tensor.a.0.forward": good, "Tensor.a.1.forward": good.replace(old, new)}
        )
        compact = CompactRun.of(*runs_of(folder), Shared())
        assert compact.read(compact.calls[0]).values  # of two runs it counts where it is compared
        for use in (
            lambda compact=compact: compact.read(compact.calls[1]),
            lambda folder=folder: CompactRun.of(*runs_of(folder), Shared(), among=True),
        ):
            with pytest.raises(DamagedError, match=re.escape("'Tensor.a.1.forward' is not JSON any more")):
                use()


def test_a_record_that_is_damaged_is_said(dump: Path) -> None:
    file = dump / "step0" / "rank1" / "dump.json"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(FormatError):
        CompactRun.of(list(runs_of(dump))[1], Shared())
    assert ranks(dump).numbers == (0, 2)
    assert list(ranks(dump).skipped) == ["step0/rank1"]


def test_a_further_rank_takes_a_small_part_of_its_file(tmp_path: Path) -> None:
    """The file is released when its records were read, without waiting for the garbage collector."""
    for rank in range(8):
        draw, records = random.Random(rank), {}
        for n in range(50):
            x, y = plain_dump.tensor(draw, [8, 64]), plain_dump.tensor(draw, [8, 64])
            records[f"Functional.linear.{n}.forward"] = {
                "input_args": [x, y],
                "input_kwargs": {},
                "output": [y],
            }
            records[f"Functional.linear.{n}.backward"] = {"input": [y], "output": [x, y]}
        write(tmp_path, rank, records, level="L1", framework="pytorch", dump_data_dir=None)
    size = (tmp_path / "step0" / "rank0" / "dump.json").stat().st_size
    shared, (first, *others) = Shared(), runs_of(tmp_path)
    held = [CompactRun.of(first, shared, among=True)]
    tracemalloc.start()
    gc.disable()
    try:
        held += [CompactRun.of(run, shared, among=True) for run in others]
        now, _ = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    print(f"{size} bytes of a file, {now // len(others)} of memory")
    assert now < len(others) * size / 2, held
