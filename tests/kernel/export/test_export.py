"""Kernel dumps as dump.json: read by probe_format, and whole by its own check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import probe_format
import probe_kernel
import pytest
from probe_format.errors import UsageError
from probe_format.read.verify import verify
from probe_kernel.export.export import cells_of, export
from trees import CONV, TIME, conv, table, tensor

LOOP = Path(__file__).parents[1] / "data" / "loop"


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """The real dump, exported."""
    done = list(export(probe_kernel.open(LOOP), tmp_path / "out", tool="test"))
    assert [(one.path.parent.name, one.faults) for one in done] == [
        ("step0", ()),
        ("step1", ()),
        ("step2", ()),
    ]
    return tmp_path / "out"


def test_the_dump_is_whole_and_strict(loop: Path) -> None:
    for verdict in verify(loop):
        assert (verdict.state, verdict.problems) == ("complete", ())


def test_values_and_statistics_are_the_kernels(loop: Path) -> None:
    rank = probe_format.open(loop).step(0).rank(0)
    assert (rank.header["level"], rank.header["task"], rank.header["framework"]) == (
        "L2",
        "tensor",
        "mindspore",
    )
    assert len(rank.records) == 9
    concat = rank.records["Kernel.Concat.Default_Concat-op0.0.forward"]
    assert [t.slot for t in concat.tensors] == ["input_args.0", "input_args.1", "input_args.2", "output.0"]
    a, b, axis, out = (t.load() for t in concat.tensors)
    np.testing.assert_array_equal(out, np.concatenate([a, b], int(axis)))
    assert np.isnan(concat.tensors[3].norm)
    assert concat.tensors[3].non_finite == "2 NaN"
    # bfloat16: its file had to be written anew, the record keeps the dtype
    cast = rank.records["Kernel.Cast.Default_Cast-op0.0.forward"].tensor("output.0")
    assert (cast.dtype, cast.load().dtype) == ("BFloat16", np.float32)
    # a slot that was never dumped is null, not another one's
    reduce = rank.records["Kernel.ReduceSum.Default_ReduceSum-op0.0.forward"]
    assert reduce.json["input_args"][1] is None
    assert [t.slot for t in reduce.tensors] == ["input_args.0", "input_args.2", "input_args.3", "output.0"]
    # the dumper's own files are linked, not copied
    assert a.shape == (2, 3)
    assert concat.tensors[0].file is not None and concat.tensors[0].file.stat().st_nlink > 1


def test_the_line_of_the_script_is_the_stack(loop: Path) -> None:
    rank = probe_format.open(loop).step(0).rank(0)
    stack = rank.records["Kernel.Add.Default_Add-op0.0.forward"].stack
    assert any("misc.py, line 21" in frame and "e = a + C" in frame for frame in stack)


def test_graphs_and_executions_of_one_step_do_not_mix(loop: Path) -> None:
    names = probe_format.open(loop).step(1).rank(0).records.names
    assert "Kernel.graph2.Mul.Expand__Muls_Mul-op0.2.forward" in names
    assert "Kernel.graph1.Less.Expand__LessScalar_Less-op0.3.forward" in names


def test_statistics_alone(tmp_path: Path) -> None:
    list(export(probe_kernel.open(LOOP), tmp_path / "out", values=False, tool="test"))
    rank = probe_format.open(tmp_path / "out").step(0).rank(0)
    tensor = rank.records["Kernel.Add.Default_Add-op0.0.forward"].tensor("output.0")
    assert tensor.file is None and tensor.shape == (2, 3)
    assert not (rank.path / "dump_tensor_data").exists()
    assert {v.state for v in verify(tmp_path / "out")} == {"complete"}


def test_lines_of_statistic_csv_become_records(tmp_path: Path) -> None:
    ends = ('input,0,24,float32,"(2,3)",5,-1,2,7.5,0,0,0,abc,',
            'output,0,24,float32,"(2,3)",5,-1,2,nan,1,2,0,def,',
            'output,1,24,float32,"(2,3)",5,-1,2,inf,0,2,0,def,',
            'output,2,24,float32,"(2,3)",null,null,null,null,0,0,6,def,')  # fmt: skip
    columns = "Max Value,Min Value,Avg Value,L2Norm Value,NaN Count,Positive Inf Count,Negative Inf Count,MD5"
    lines = (f"Conv2D,{CONV},0,0,{TIME},{end}" for end in ends)
    table(tmp_path / "rank_0/Net/0/0", *lines, more=columns)
    list(export(probe_kernel.open(tmp_path), tmp_path / "out", tool="test"))
    (verdict,) = verify(tmp_path / "out")
    assert (verdict.state, verdict.problems) == ("complete", ())
    x, y, above, below = next(iter(probe_format.open(tmp_path / "out").step(0).rank(0).records)).tensors
    assert (x.max, x.min, x.mean, x.norm) == (5, -1, 2, 7.5)
    assert y.max != y.max and y.json["finite_max"] == 5
    assert (y.json["nan_count"], y.json["posinf_count"]) == (1, 2)
    assert (above.max, above.min, above.mean) == (np.inf, -1, np.inf)
    assert (below.max, below.min, below.mean) == (-np.inf, -np.inf, -np.inf)
    assert x.json["file_md5"] == "abc" and x.checksum is None  # not a CRC-32


def test_what_cannot_be_read_is_said_and_does_not_stop_it(tmp_path: Path) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    bad = next(folder.glob("*.output.0.*"))
    bad.write_bytes(b"no")
    (done,) = export(probe_kernel.open(tmp_path), tmp_path / "out", tool="test")
    assert len(done.faults) == 1 and "not a whole .npy file" in done.faults[0]
    rank = probe_format.open(tmp_path / "out").step(0).rank(0)
    (record,) = rank.records
    assert "not a whole .npy file" in record.tensor("output.0").json["unsupported"]
    assert rank.report is not None and rank.report.faults
    assert verify(tmp_path / "out")[0].problems == ()


def test_a_dump_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    list(export(probe_kernel.open(LOOP), tmp_path, tool="test"))
    with pytest.raises(UsageError, match="holds a dump already"):
        list(export(probe_kernel.open(LOOP), tmp_path, tool="test"))


def test_the_same_name_of_two_nets_stays_two_records(tmp_path: Path) -> None:
    for net in ("A", "B"):
        tensor(tmp_path / f"rank_0/{net}/0/0", "Add.Default_Add-op0.0.0.1.output.0.ND.float32.npy")
    (done,) = export(probe_kernel.open(tmp_path), tmp_path / "out", tool="test")
    assert done.records == 2


def test_the_cells_of_a_scope() -> None:
    name = "Default/network-WithLossCell/_backbone-AlexNet/layers-CellList/0-Block/conv1-Conv2d/Conv2D-op0"
    assert list(cells_of(name, "forward")) == [
        "Cell.network.WithLossCell.forward.0",
        "Cell.network._backbone.AlexNet.forward.0",
        "Cell.network._backbone.layers.CellList.forward.0",
        "Cell.network._backbone.layers.0.Block.forward.0",
        "Cell.network._backbone.layers.0.conv1.Conv2d.forward.0",
    ]
    # As Probe's own dump of that Cell names them.
    assert (
        list(cells_of(name, "backward", "network._backbone"))[-1] == "Cell.layers.0.conv1.Conv2d.backward.0"
    )
    assert list(cells_of("Default/Add-op0", "forward")) == []
    assert list(cells_of("Default/optimizer-Momentum/Add-op0", "forward", "network._backbone")) == []


def test_absurd_slots_are_no_million_nulls(tmp_path: Path) -> None:
    lines = (f'Add,a{n},1,2,{n},input,{slot},4,Float32,"()",1' for n in range(300) for slot in (0, 99_999))
    table(tmp_path / "in/rank_0/Net/0/0", *lines)
    (done,) = export(probe_kernel.open(tmp_path / "in"), tmp_path / "out", tool="test")
    assert done.tensors == 300 and len(done.faults) == 300
    assert "a0 input.99999 is left out" in done.faults[0]
    assert (done.path / "dump.json").stat().st_size < 200_000
