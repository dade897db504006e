"""What can be saved, and how it is written: numpy and plain Python, without any framework."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import probe_save as ps
import pytest
from hostile import HOSTILE as RAISING
from hostile import HUGE
from probe_format.errors import UsageError
from probe_format.tensors.array_object import array_stats
from probe_format.tensors.stats import stats_json, stats_of
from saving import data, document, load

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    ids: Any
    mask: Any = None


def test_a_value_of_each_kind(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="statistics") as saver:
        given = {
            "array": np.arange(6.0).reshape(2, 3),
            "list": [1, 2.5, "text", None, True],
            "pair": Pair(np.float32(1.5), (2,)),
            "batch": Batch(np.array([1, 2])),
            "nan": float("nan"),
        }
        assert saver.save(given, "all", save_backward=False) is given
    found = data(tmp_path)["all.0.debug"]
    assert found["array"] == {
        "type": "numpy.ndarray", "dtype": "float64", "shape": [2, 3],
        "Max": 5.0, "Min": 0.0, "Mean": 2.5, "Norm": pytest.approx(np.sqrt(55)),
    }  # fmt: skip
    assert found["list"] == [
        {"type": "int", "value": 1}, {"type": "float", "value": 2.5}, {"type": "str", "value": "text"},
        None, {"type": "bool", "value": True},
    ]  # fmt: skip
    assert found["pair"] == {
        "left": {"type": "float32", "value": 1.5},
        "right": [{"type": "int", "value": 2}],
    }
    assert found["batch"]["ids"]["Max"] == 2
    assert found["batch"]["mask"] is None
    assert found["nan"] == {"type": "float", "value": "NaN"}


@pytest.mark.parametrize("value", [5, "text", None, 2.5, [1, [2]], {"a": {"b": 1}}, np.zeros(3)])
def test_the_gradient_of_what_has_none_is_null(tmp_path: Path, value: Any) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        saver.save(value, "x")
        saver.save(value, "y", save_backward=False)
    found = data(tmp_path)
    assert list(found) == ["x.0.debug", "x_grad.0.debug", "y.0.debug"]

    def leaves(node: Any) -> list[Any]:
        parts = node.values() if isinstance(node, dict) else node
        return [leaf for p in parts for leaf in leaves(p)] if isinstance(node, (dict, list)) else [node]

    assert set(leaves(found["x_grad.0.debug"])) == {None}


def nearly(numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        key: pytest.approx(value, rel=1e-5, abs=1e-6) if isinstance(value, float) else value
        for key, value in numbers.items()
    }


DTYPES = ["f4", "f8", "f2", "i1", "u8", "i4", "?", "c8", "c16", ">f4", "<i8", "g"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (2, 1, 4)])
def test_arrays_keep_their_bytes_and_numbers(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(1).standard_normal(shape) * 50).astype(dtype)
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode="md5") as saver:
        saver.save(array, "x")
    tensor = data(tmp_path)["x.0.debug"]
    expected = stats_json(stats_of(array))
    assert {key: tensor[key] for key in expected} == nearly(expected)
    assert len(tensor["md5"]) == 8
    if not array.size:
        assert "data_name" not in tensor
        return
    back = load(tmp_path, "x.0.debug")
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[::2, 1:],
        lambda a: a.T,
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], (5, 8)),
        lambda a: a[::-1],
        lambda a: a.view(np.recarray),
    ],
)
def test_views_are_written_as_they_look(tmp_path: Path, make: Any) -> None:
    array = make(np.arange(48, dtype=np.float32).reshape(6, 8))
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode="md5") as saver:
        saver.save(array, "x")
    assert np.array_equal(load(tmp_path, "x.0.debug"), np.asarray(array))
    data(tmp_path)  # verify compares the checksum with the file


def test_arrays_without_numbers_say_so(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode="md5") as saver:
        saver.save(np.array(["a", "bc"]), "text")
        saver.save(np.array([1, object()], dtype=object), "objects")
        saver.save(np.array(["2020-01-01"], dtype="M8[D]"), "dates")
        saver.save(np.zeros(2, dtype=[("x", "f4"), ("y", "i4")]), "struct")
    found = data(tmp_path)
    assert all("no statistics" in found[f"{n}.0.debug"]["unsupported"] for n in ("text", "objects", "dates"))
    assert "Python objects" in found["objects.0.debug"]["lost"]
    assert load(tmp_path, "text.0.debug").tolist() == ["a", "bc"]
    assert load(tmp_path, "struct.0.debug").dtype.names == ("x", "y")


def test_more_kinds_of_float(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = [0.5, -2.0, 1.5, 0.0]
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        for kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"):
            saver.save(np.array(values, dtype=getattr(ml_dtypes, kind)), kind)
    found = data(tmp_path)
    for kind in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        assert found[f"{kind}.0.debug"]["dtype"] == kind
        assert found[f"{kind}.0.debug"]["Min"] == -2.0
        assert load(tmp_path, f"{kind}.0.debug").tolist() == values
    assert found["int4.0.debug"]["Min"] == -2
    assert load(tmp_path, "int4.0.debug").tolist() == [0, -2, 1, 0]


@pytest.mark.parametrize("spoil", [0.5, np.nan, np.inf, 60000.0])
def test_a_large_array_of_half_floats_has_the_reference_numbers(spoil: float) -> None:
    a = np.random.default_rng(0).standard_normal(400_001).astype(np.float16)
    a[123_456] = spoil
    assert stats_json(array_stats(a)) == nearly(stats_json(stats_of(a)))


HOSTILE = [
    "a/b", "../../up", "..", ".", "/etc/passwd", "name with spaces", "数值", "x" * 300, "new\nline", "nul\0",
    "quote\"'", "\\back", "a.0.debug", "x_grad", "tab\t", "~", "\ud800", "optimizer", "Module.fc.Linear.forward.0",
]  # fmt: skip


def test_any_text_is_a_name(tmp_path: Path) -> None:
    """Files stay inside the folder and apart; the JSON keeps the names as they are."""
    dump = tmp_path / "dump"
    with ps.Saver(dump_path=dump, task="tensor") as saver:
        for i, name in enumerate(HOSTILE):
            saver.save(np.full(3, i), name, save_backward=False)
            saver.save({"..": np.full(2, i), "a/b": [np.full(1, i)]}, name, save_backward=False)
    found = data(dump)
    assert list(found) == [f"{name}.{n}.debug" for name in HOSTILE for n in (0, 1)]
    files = list(tmp_path.rglob("*.npy"))
    assert len(files) == 3 * len(HOSTILE)
    assert {p.parent for p in files} == {dump / "step0" / "rank" / "dump_tensor_data"}
    for i, name in enumerate(HOSTILE):
        assert load(dump, f"{name}.0.debug").tolist() == [i] * 3
        assert load(dump, f"{name}.1.debug", "a/b.0").tolist() == [i]


def test_keys_that_look_alike_get_files_of_their_own(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        saver.save({"a.b": np.zeros(1), "a": {"b": np.ones(1)}}, "x")
        saver.save({"0.debug": np.full(1, 2)}, "y")
        saver.save(np.full(1, 3), "y.0.debug")
    found = data(tmp_path)
    names = [
        found["x.0.debug"]["a.b"]["data_name"], found["x.0.debug"]["a"]["b"]["data_name"],
        found["y.0.debug"]["0.debug"]["data_name"], found["y.0.debug.0.debug"]["data_name"],
    ]  # fmt: skip
    values = [np.load(tmp_path / "step0" / "rank" / "dump_tensor_data" / n).tolist() for n in names]
    assert values == [[0.0], [1.0], [2], [3]]


@pytest.mark.parametrize("name", ["", None, 3, ("a",), b"x", RAISING["silent"]])
def test_what_is_no_name_is_refused(tmp_path: Path, name: Any) -> None:
    with ps.Saver(dump_path=tmp_path) as saver, pytest.raises(UsageError, match="save wants a name"):
        saver.save(1, name)


def test_the_header(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        saver.save(1, "x")
    header = document(tmp_path / "step0" / "rank")
    assert header["task"] == "tensor"
    assert header["level"] == "debug"
    assert header["framework"] == "numpy"
    assert header["dump_data_dir"] == str(tmp_path / "step0" / "rank" / "dump_tensor_data")
    assert header["tool"] == f"probe-save {ps.__version__}"


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_a_large_array_is_written_while_it_is_counted(tmp_path: Path, mode: str) -> None:
    array = np.random.default_rng(0).standard_normal(1 << 21).astype(np.float32)
    array[5] = np.nan
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode=mode) as saver:
        saver.save([array, array[::2]], "x")
    found = data(tmp_path)["x.0.debug"]
    assert found[0]["nan_count"] == 1
    assert load(tmp_path, "x.0.debug", "0").tobytes() == array.tobytes()
    assert np.array_equal(load(tmp_path, "x.0.debug", "1"), array[::2])


def test_a_large_array_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        saver.save(1, "x")
        (tmp_path / "step0/rank/dump_tensor_data").rmdir()
        with pytest.warns(RuntimeWarning, match="could not write everything"):
            saver.save(np.zeros(1 << 21), "y")


# -- what raises, and what JSON has no word for -------------------------------------------------------


@pytest.mark.parametrize("what", sorted(RAISING))
def test_no_value_raises_into_the_run(what: str, tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        assert saver.save(RAISING[what], "before") is RAISING[what]
        saver.save({"in": [RAISING[what], np.ones(2)]}, "inside")
        saver.save(np.ones(3), "after")
    found = data(tmp_path)
    assert found["after.0.debug"]["shape"] == [3] and found["inside.0.debug"]
    assert "before.0.debug" in found, "it has a record, if only of what it is"
    assert next(RAISING["endless"]) == 1, "a generator is not used up"


def test_a_number_of_any_length_has_a_record(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        saver.save([10**3999, HUGE, 2**64], "n", save_backward=False)
    first, huge, big = data(tmp_path)["n.0.debug"]
    assert first == {"type": "int", "value": 10**3999} and big["value"] == 2**64
    assert huge == {"type": "int", "value": None, "unsupported": "a whole number of more than 4000 digits"}


# -- a disk that is full ------------------------------------------------------------------------------

FULL = """
import os, resource, sys, warnings
import numpy as np
import probe_save as ps

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

saver = ps.Saver(dump_path=sys.argv[1], task="tensor")
saver.save(np.ones(10), "first", save_backward=False)
room(4096)
saver.save({"small": np.ones(20), "large": np.ones(5000)}, "file", save_backward=False)
room(os.path.getsize(os.path.join(sys.argv[1], "step0", "rank", "records.journal")))
saver.save(np.ones(2), "journal")
saver.save(3, "journal", save_backward=False)
room(resource.RLIM_INFINITY)
saver.save(np.ones(5000), "last", save_backward=False)
saver.save(4, "journal", save_backward=False)
saver.step()
saver.save(5, "next", save_backward=False)
saver.close()
print("went on")
"""


def test_a_full_disk_costs_the_value_and_not_the_step(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: first a tensor file finds no room, then the journal."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "went on\n", done.stderr
    found = data(tmp_path)
    assert list(found) == ["first.0.debug", "file.0.debug", "last.0.debug", "journal.2.debug"]
    value = found["file.0.debug"]
    assert "data_name" in value["small"] and "data_name" not in value["large"]
    assert value["large"]["lost"].startswith("tensor file: ") and value["large"]["Norm"] == 5000**0.5
    assert found["last.0.debug"]["data_name"]
    report = json.loads((tmp_path / "step0" / "rank" / "report.json").read_text())
    assert report["counts"]["failed"] == {"values": 3} and report["state"] == "complete"
    assert sum(fault["count"] for fault in report["faults"]) == 3
    assert done.stderr.count("could not write everything") == 1, "told once in a step"
    assert list(data(tmp_path, 1)) == ["next.0.debug"]
