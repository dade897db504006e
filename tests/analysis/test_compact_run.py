"""What is kept of the records of many ranks: all that they say, in less memory than their files."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import plain_dump
import pytest
from probe_analysis import ranks
from probe_analysis.calls.run import runs_of
from probe_analysis.ranks.compact_run import CompactRun, Shared
from probe_format.errors import FormatError
from probe_format.schema import Parts


def said(parts: Parts) -> str:
    """The parts as text, in which NaN is equal to itself."""
    values = [(v.slot, v.side, sorted(v.tensor.items())) for v in parts.values]
    return repr((values, parts.others))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two ranks with the same calls and other numbers, and a third with fewer calls."""
    for rank in range(3):
        records = plain_dump.records(random.Random(rank), 0, rank)
        odd: dict[str, Any] = {
            "type": "torch.Tensor",
            "dtype": "torch.int64",
            "shape": [2],
            "requires_grad": False,
        }
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
        folder = tmp_path / "step0" / f"rank{rank}"
        folder.mkdir(parents=True)
        head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        (folder / "dump.json").write_text(json.dumps({**head, "data": records}))
    return tmp_path


def test_nothing_of_a_record_is_lost(dump: Path) -> None:
    shared = Shared()
    plain = list(runs_of(dump))
    compact = [CompactRun.of(run, shared) for run in plain]
    assert compact[0].calls is compact[1].calls and compact[0].calls is not compact[2].calls
    for whole, run in zip(plain, compact, strict=True):
        assert [call.name for call in run.calls] == [call.name for call in whole.calls]
        for call, other in zip(run.calls, whole.calls, strict=True):
            assert said(run.read(call)) == said(other.read())
            assert run.ended_inside(call) is False
            assert len(run.form(call).keywords) == len(other.record.json.get("input_kwargs", ()))
    with pytest.raises(KeyError, match="does not make"):
        compact[0].read(compact[2].calls[-1])


def test_a_record_that_is_damaged_is_said(dump: Path) -> None:
    file = dump / "step0" / "rank1" / "dump.json"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(FormatError):
        CompactRun.of(list(runs_of(dump))[1], Shared())
    assert ranks(dump).numbers == (0, 2)
    assert any("step0/rank1 is not compared" in note for note in ranks(dump).notes)


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
        folder = tmp_path / "step0" / f"rank{rank}"
        folder.mkdir(parents=True)
        head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        (folder / "dump.json").write_text(json.dumps({**head, "data": records}))
    size = (tmp_path / "step0" / "rank0" / "dump.json").stat().st_size
    shared, (first, *others) = Shared(), runs_of(tmp_path)
    held = [CompactRun.of(first, shared)]
    tracemalloc.start()
    gc.disable()
    try:
        held += [CompactRun.of(run, shared) for run in others]
        now, _ = tracemalloc.get_traced_memory()
    finally:
        gc.enable()
        tracemalloc.stop()
    print(f"{size} bytes of a file, {now // len(others)} of memory")
    assert now < len(others) * size / 2, held
