"""statistic.csv: every header, damaged lines, and the numbers computed for dumps that have none."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import probe_kernel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.cli.main import main
from probe_format.errors import ConfigError
from probe_kernel import cli
from probe_kernel.read.dump import read_order
from probe_kernel.read.file_name import parse_file_name
from probe_kernel.read.listing import read_mapping
from probe_kernel.read.statistic_csv import read_table
from probe_kernel.read.statistic_line import Row, table_text
from probe_kernel.read.statistics import CATEGORIES, NUMBERS, check_categories, numbers
from trees import COLUMNS, CONV, TIME, conv, tensor
from trees import table as write_table


def table(tmp_path: Path, *lines: str):
    path = tmp_path / "statistic.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_table(path)


def row_of(**of: Any) -> Row:
    """A line of a float32 [2, 3], but for what is given."""
    plain = {"op_type": "Add", "op_name": "Default_Add-op0", "task": 0, "stream": 0, "timestamp": 17, "io": "input",
             "slot": 0, "dtype": "float32", "shape": (2, 3), "size": 24}  # fmt: skip
    return Row(**{**plain, **of})


def test_as_mindspore_writes_it(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        f"{COLUMNS},Max Value,Min Value,L2Norm Value",
        'Sub,Default_Sub-op0,0,0,1733905446819790,input,0,4,float32,"()",3,3,3,',
        'Cast,Default_Cast-op0,0,0,1733905446824053,input,1,8,int64,"(2,3)",30,-1.5,inf,',
        'Cast,Default_Cast-op0,0,0,1733905446824054,output,0,8,float32,"(2,)",null,null,null,',
    )
    assert found.problems == ()
    sub, cast, bad = found.rows
    assert (sub.op_type, sub.op_name, sub.io, sub.slot, sub.size, sub.dtype, sub.shape) == (
        "Sub", "Default_Sub-op0", "input", 0, 4, "float32", (),
    )  # fmt: skip
    assert sub.timestamp == 1733905446819790
    assert cast.shape == (2, 3)
    assert cast.values == {"max": 30, "min": -1.5, "l2norm": float("inf")}
    assert bad.shape == (2,)
    assert bad.values == {"max": None, "min": None, "l2norm": None}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        # older MindSpore: everything, always
        (f"{COLUMNS},Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
         "Negative Inf Count,Positive Inf Count,Zero Count",
         'Add,a,1,2,3,output,4,24,Float32,"(2,3)",5,-1,2,6,1,4,0,0,0,1'),
        # msprobe on ACL: another word for IO, and a format
        ("Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,Max Value,"
         "Min Value,Avg Value,L2Norm Value,NaN Count,MD5 Value",
         'Add,a,1,2,3,output,4,24,Float32,ND,"(2,3)",5,-1,2,9,0,d41d8cd98f00b204e9800998ecf8427e'),
        # a shape without its quotes
        (f"{COLUMNS},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,(2,3),5,-1,"),
        (f"{COLUMNS},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,[2,3],5,-1,"),
        (f"{COLUMNS},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,2x3,5,-1"),
        # capital letters and blanks
        (f"{COLUMNS.upper()}, MAX VALUE ,min value", 'Add,a,1,2,3,Output,4,24,Float32,"(2, 3)", 5 ,-1'),
    ],
)  # fmt: skip
def test_every_header(tmp_path: Path, header: str, row: str) -> None:
    found = table(tmp_path, header, row)
    assert found.problems == ()
    (one,) = found.rows
    assert (one.io, one.slot, one.shape, one.dtype) == ("output", 4, (2, 3), "Float32")
    assert (one.values["max"], one.values["min"]) == (5, -1)
    if "MD5" in header:
        assert one.values["md5"] == "d41d8cd98f00b204e9800998ecf8427e"
        assert one.format == "ND"


def test_unknown_columns_are_kept(tmp_path: Path) -> None:
    (row,) = table(tmp_path, f"{COLUMNS},Kurtosis", 'Add,a,1,2,3,output,0,4,Float32,"()",7').rows
    assert row.values == {"Kurtosis": 7}


def test_the_csv_that_a_device_writes_for_one_kernel(tmp_path: Path) -> None:
    path = tmp_path / "Add.Default_Add-op1.5.6.7.csv"
    path.write_text(
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value\nInput,1,24,FLOAT,ND,2x3,6,4.5\n"
    )
    (row,) = read_table(path, parse_file_name(path.name)).rows
    assert (row.op_type, row.op_name, row.task, row.stream, row.timestamp) == (
        "Add",
        "Default_Add-op1",
        5,
        6,
        7,
    )
    assert (row.io, row.slot, row.shape, row.values) == ("input", 1, (2, 3), {"count": 6, "max": 4.5})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Add,a,1,2,3,output,0,4", "8 cells and its header 11"),
        ('Add,a,one,2,3,output,0,4,Float32,"()",7', "is not a whole number"),
        ('Add,a,1,2,3,middle,0,4,Float32,"()",7', "neither input nor output"),
        ('Add,a,1,2,3,output,0,4,Float32,"(a)",7', "is not a shape"),
        ('Add,a,1,2,3,output,0,4,Float32,"(2,3",7', "is not a shape"),
    ],
)
def test_a_damaged_line_is_named_and_the_others_stay(tmp_path: Path, line: str, why: str) -> None:
    found = table(tmp_path, f"{COLUMNS},Max Value", line, 'Add,a,1,2,3,output,0,4,Float32,"()",7,')
    assert [row.values["max"] for row in found.rows] == [7]
    assert len(found.problems) == 1
    assert "line 2" in found.problems[0] and why in found.problems[0]


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "empty" in table(tmp_path, "").problems[0]
    assert "before any header" in table(tmp_path, "Add,a,1").problems[0]
    assert "no column Slot, Shape" in table(tmp_path, "Op Type,IO,Data Type", "Add,input,x").problems[0]
    path = tmp_path / "statistic.csv"
    path.write_bytes(b"\x00\xff\xfe" * 50)
    assert read_table(path).problems


def test_categories_as_the_configuration_names_them() -> None:
    assert check_categories(["max", "MEAN", "hash:md5", "max"]) == ("max", "avg", "md5")
    with pytest.raises(ConfigError, match=r"'l2nrom'.*l2norm"):
        check_categories(["l2nrom"])


def test_the_numbers_of_an_array() -> None:
    found = numbers(np.array([3, -4, 0, 0, np.nan, np.inf, -np.inf], np.float32))
    assert found["max"] == 3 and found["min"] == -4
    assert found["avg"] == -0.25
    assert np.isnan(found["l2norm"])
    assert {key: found[key] for key in found if "count" in key} == {
        "count": 7, "negative zero count": 1, "positive zero count": 1, "nan count": 1, "negative inf count": 1,
        "positive inf count": 1, "zero count": 2,
    }  # fmt: skip
    assert numbers(np.array([3.0, -4.0]))["l2norm"] == 5.0


def test_nothing_finite_and_nothing_at_all_are_null() -> None:
    found = numbers(np.array([np.nan, np.inf]))
    assert [found[key] for key in ("max", "min", "avg", "l2norm")] == [None] * 4
    assert [numbers(np.zeros(0))[key] for key in ("max", "l2norm", "count")] == [None, None, 0]
    assert numbers(np.array([1j]))["max"] is None
    assert numbers(np.array([1, 2], np.uint8), dtype="HiFloat8")["max"] is None  # those are codes


def test_hashes_are_of_the_bytes() -> None:
    assert numbers(np.zeros(0), ["md5", "sha1"]) == {
        "md5": "d41d8cd98f00b204e9800998ecf8427e",
        "sha1": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    }


@given(hnp.arrays(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.bool_]),
                  hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))  # fmt: skip
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    values = numbers(array, list(CATEGORIES))
    row = row_of(dtype=array.dtype.name, shape=array.shape, size=array.nbytes, values=values)
    path = tmp_path_factory.mktemp("csv") / "statistic.csv"
    path.write_text("\n".join(table_text([row], list(CATEGORIES))) + "\n")
    found = read_table(path)
    assert found.problems == ()
    (back,) = found.rows
    assert (back.shape, back.size, back.dtype) == (array.shape, array.nbytes, array.dtype.name)
    for key in CATEGORIES:
        if isinstance(values[key], float):
            assert back.values[key] == pytest.approx(values[key], rel=1e-8, nan_ok=True)
        else:
            assert back.values[key] == values[key]


def test_the_lines_are_mindspores(tmp_path: Path) -> None:
    row = row_of(op_type="Sub", op_name="Default_Sub-op0", values={"max": 3.0, "min": None})
    header, line = table_text([row], ["max", "min"])
    assert header == f"{COLUMNS},Max Value,Min Value"
    assert line == 'Sub,Default_Sub-op0,0,0,17,input,0,24,float32,"(2,3)",3,null,'
    assert next(csv.reader(io.StringIO(line)))[9] == "(2,3)"
    assert set(NUMBERS) == set(CATEGORIES) - {"md5", "sha1"}


# -- lines by hand, and by tools ---------------------------------------------------------------------------

LINE = 'Add,a,1,2,3,output,0,4,Float32,"()",7'


def test_a_garbled_number_is_named_and_the_rest_of_its_line_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in/rank_0/Net/0/0"
    conv(folder)
    bad = f'Conv2D,{CONV},2,7,{TIME},input,0,12,Float16,"(2,3)",7.25x,1'
    write_table(folder, bad, more="Max Value,Min Value")
    (row,) = read_table(folder / "statistic.csv").rows
    assert row.values == {"min": 1}
    assert cli.main(["check", str(tmp_path / "in")]) == 3
    said = capsys.readouterr().err
    assert "line 2" in said and "Max Value '7.25x' is not a number" in said
    assert cli.main(["show", str(tmp_path / "in")]) == 3
    assert cli.main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 3
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_garbled_number_alone_is_exported(tmp_path: Path) -> None:
    """Statistics without tensors: what the line lacks is not made up."""
    bad = f'Conv2D,{CONV},2,7,{TIME},input,0,12,Float16,"(2,3)",7.25x,1,99999999999999999999999'
    write_table(tmp_path / "in/rank_0/Net/0/0", bad, more="Max Value,Min Value,L2Norm Value")
    assert cli.main(["export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 3
    (tensor,) = [
        t for rank in probe_format.open(tmp_path / "out").ranks for r in rank.records for t in r.tensors
    ]
    assert (tensor.max, tensor.min, tensor.norm) == (None, 1, 99999999999999999999999)


@pytest.mark.parametrize(
    "cell", ["7.25x", "1_000", "\u0661\u0662", "0x10", "1e", "--1", "9" * 500, "1e999999", "x"]
)
def test_no_number_is_none(cell: str, tmp_path: Path) -> None:
    found = table(tmp_path, f"{COLUMNS},Max Value", LINE.removesuffix("7") + cell)
    assert len(found.rows) == 1 and found.rows[0].values == {}
    assert "is not a number" in found.problems[0] and len(found.problems[0]) < 200


@pytest.mark.parametrize(("cell", "value"), [("inf", np.inf), ("-Inf", -np.inf), ("1e5", 1e5), (".5", 0.5),
                                             ("5.", 5.0), ("-3", -3), ("true", 1), ("+2.5E-3", 0.0025)])  # fmt: skip
def test_every_number_is_one(cell: str, value: float, tmp_path: Path) -> None:
    (row,) = table(tmp_path, f"{COLUMNS},Max Value", LINE.removesuffix("7") + cell).rows
    assert row.values == {"max": value}


def test_any_column_may_be_the_first(tmp_path: Path) -> None:
    names = [*COLUMNS.split(","), "Max Value"]
    cells = ["Add", "a", "1", "2", "3", "output", "0", "4", "Float32", '"(2,3)"', "7"]
    for turn in range(len(names)):
        header, line = (",".join(x[turn:] + x[:turn]) for x in (names, cells))
        found = table(tmp_path, header, line, header, line + ",")
        assert found.problems == ()
        assert [(row.op_type, row.shape, row.values) for row in found.rows] == [
            ("Add", (2, 3), {"max": 7})
        ] * 2


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "statistic.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{COLUMNS},Max Value,\r\n{LINE},\r\n".encode())
    found = read_table(path)
    assert found.problems == () and found.rows[0].values == {"max": 7}
    (tmp_path / "12").write_text("")
    (tmp_path / "mapping.csv").write_bytes(b"\xef\xbb\xbf12,Op.x.1.2.3\r\n")
    assert read_mapping(tmp_path)[0] == {"12": "Op.x.1.2.3"}
    order = tmp_path / "ms_execution_order_graph_0.csv"
    order.write_bytes(b"\xef\xbb\xbfNodeExecutionOrder-FullNameWithScope\nDefault/Add-op0\n")
    assert read_order(order) == ("Default/Add-op0",)


def test_an_open_quotation_mark_costs_its_own_line(tmp_path: Path) -> None:
    found = table(tmp_path, f"{COLUMNS},Max Value", LINE, '"' + LINE, *[LINE] * 3000)
    assert len(found.rows) == 3001
    assert len(found.problems) == 1 and "line 3" in found.problems[0]


def test_a_file_of_bad_lines_is_bounded(tmp_path: Path) -> None:
    found = table(tmp_path, f"{COLUMNS},Max Value", *["x"] * 5000, LINE, "," * 100_000, "(" + "," * 100_000)
    assert len(found.rows) == 1
    assert len(found.problems) == 1001 and "4001 more lines" in found.problems[-1]


NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=()), min_size=1, max_size=12
).filter(lambda name: len(os.fsencode(name)) < 60 if name.isprintable() else _encodes(name))


def _encodes(name: str) -> bool:
    try:
        return len(os.fsencode(name)) < 60
    except UnicodeEncodeError:
        return False


@settings(derandomize=True, max_examples=200)
@given(NAMES, NAMES, st.lists(st.floats(), min_size=2, max_size=2))
def test_whatever_is_written_is_read_again(op_type: str, op_name: str, values: list[float]) -> None:
    row = row_of(op_type=op_type, op_name=op_name, values={"max": values[0], "l2norm": values[1]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "statistic.csv")
        path.write_bytes(os.fsencode("\n".join(table_text([row], ["max", "l2norm"])) + "\n"))
        found = read_table(path)
    assert found.problems == ()
    (again,) = found.rows
    assert (again.op_type, again.op_name) == (op_type, op_name)
    np.testing.assert_array_equal(list(again.values.values()), values)


@pytest.mark.parametrize("name", ["a,b", 'quote"', "(1,2", " blank ", "l\udcffatin", "new\nline", "\u0661"])
def test_statistics_reads_what_it_writes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in/rank_0/Net/0/0"
    tensor(folder, f"Op.{name}.1.2.{TIME}.input.0.ND.Float32.npy", np.float32([1, np.nan]))
    assert main(["kernel", "statistics", str(tmp_path / "in")]) == 0
    (iteration,) = probe_kernel.open(tmp_path).iterations
    assert iteration.problems == ()
    (kernel,) = iteration.kernels
    assert kernel.slots[0].row is not None and kernel.slots[0].statistics["nan count"] == 1
    for command in (["show"], ["show", "--bad"], ["check"]):
        assert main(["kernel", command[0], str(tmp_path / "in"), *command[1:]]) == 0
    assert main(["kernel", "export", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert main(["verify", str(tmp_path / "out")]) == 0
    assert main(["show", str(tmp_path / "out")]) == 0
    assert "Kernel.Op." in capsys.readouterr().out


def test_a_cell_without_an_end_is_not_the_message(tmp_path: Path) -> None:
    """Found by the fuzz tests with other seeds."""
    found = table(
        tmp_path,
        f"{COLUMNS},Max Value",
        LINE.replace("output", "9" * 5000),
        LINE.replace("a", "b" * 5000) + "x",
    )
    assert len(found.problems) == 2 and all(len(problem) < 400 for problem in found.problems)
    assert "neither input nor output" in found.problems[0]
