"""statistic.csv: every header, damaged lines, and the numbers computed for dumps that have none."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_format.errors import ConfigError
from probe_kernel.categories import CATEGORIES, check_categories
from probe_kernel.filename import parse_file_name
from probe_kernel.statistic import Row, read_table, table_text
from probe_kernel.synthesis import NUMBERS, numbers

FIXED = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"


def table(tmp_path: Path, *lines: str):
    path = tmp_path / "statistic.csv"
    path.write_text("\n".join(lines) + "\n")
    return read_table(path)


def test_as_mindspore_writes_it(tmp_path: Path) -> None:
    found = table(
        tmp_path,
        f"{FIXED},Max Value,Min Value,L2Norm Value",
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
        (f"{FIXED},Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
         "Negative Inf Count,Positive Inf Count,Zero Count",
         'Add,a,1,2,3,output,4,24,Float32,"(2,3)",5,-1,2,6,1,4,0,0,0,1'),
        # msprobe on ACL: another word for IO, and a format
        ("Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,Max Value,"
         "Min Value,Avg Value,L2Norm Value,NaN Count,MD5 Value",
         'Add,a,1,2,3,output,4,24,Float32,ND,"(2,3)",5,-1,2,9,0,d41d8cd98f00b204e9800998ecf8427e'),
        # a shape without its quotes
        (f"{FIXED},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,(2,3),5,-1,"),
        (f"{FIXED},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,[2,3],5,-1,"),
        (f"{FIXED},Max Value,Min Value", "Add,a,1,2,3,output,4,24,Float32,2x3,5,-1"),
        # capital letters and blanks
        (f"{FIXED.upper()}, MAX VALUE ,min value", 'Add,a,1,2,3,Output,4,24,Float32,"(2, 3)", 5 ,-1'),
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
    (row,) = table(tmp_path, f"{FIXED},Kurtosis", 'Add,a,1,2,3,output,0,4,Float32,"()",7').rows
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
        ('Add,a,one,2,3,output,0,4,Float32,"()",7', "invalid literal"),
        ('Add,a,1,2,3,middle,0,4,Float32,"()",7', "neither input nor output"),
        ('Add,a,1,2,3,output,0,4,Float32,"(a)",7', "no shape"),
        ('Add,a,1,2,3,output,0,4,Float32,"(2,3",7', "cells"),
    ],
)
def test_a_damaged_line_is_named_and_the_others_stay(tmp_path: Path, line: str, why: str) -> None:
    found = table(tmp_path, f"{FIXED},Max Value", line, 'Add,a,1,2,3,output,0,4,Float32,"()",7,')
    assert [row.values["max"] for row in found.rows] == [7]
    assert len(found.problems) == 1
    assert "line 2" in found.problems[0]


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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    values = numbers(array, list(CATEGORIES))
    row = Row(
        "Add",
        "Default_Add-op0",
        0,
        0,
        16,
        "output",
        1,
        array.dtype.name,
        array.shape,
        array.nbytes,
        "",
        values,
    )
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
    row = Row(
        "Sub", "Default_Sub-op0", 0, 0, 17, "input", 0, "float32", (2, 3), 24, "", {"max": 3.0, "min": None}
    )
    header, line = table_text([row], ["max", "min"])
    assert header == f"{FIXED},Max Value,Min Value"
    assert line == 'Sub,Default_Sub-op0,0,0,17,input,0,24,float32,"(2,3)",3,null,'
    assert next(csv.reader(io.StringIO(line)))[9] == "(2,3)"
    assert set(NUMBERS) == set(CATEGORIES) - {"md5", "sha1"}
