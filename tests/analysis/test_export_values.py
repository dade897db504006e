"""An export of values, read by the real safetensors, against the tensors that were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_analysis import export
from probe_analysis.cli.export import main

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
ps = pytest.importorskip("probe_save")

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64")
SAME = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")


def drawn(dtype: str, *shape: int) -> Any:
    return (torch.randn(shape, dtype=torch.float64) * 3).to(getattr(torch, dtype))


def saved(folder: Path, values: dict[str, Any], **settings: Any) -> Path:
    with ps.Saver(dump_path=folder, **{"task": "tensor", **settings}) as saver:
        for name, value in values.items():
            saver.save(value, name)
    return folder


def bits(t: Any) -> Any:
    return t.contiguous().reshape(-1).view(torch.uint8)


def read(folder: Path) -> dict[str, Any]:
    """Name without the number of the save -> tensor."""
    (file,) = folder.rglob("*.safetensors")
    return {name.partition(".")[0]: tensor for name, tensor in safetensors.load_file(file).items()}


@pytest.mark.parametrize("tensor_files", ["one", "packed"])
def test_every_dtype_comes_to_the_bit(tmp_path: Path, tensor_files: str) -> None:
    values = {
        f"{kind}_{n}": drawn(kind, *shape)
        for kind in SAME
        for n, shape in enumerate([(3, 5), (), (0, 2), (7,)])
    }
    values |= {f"t_{kind}": drawn(kind, 3, 4).t() for kind in SAME}
    dump = saved(tmp_path / "dump", values, tensor_files=tensor_files)
    found = export(dump, tmp_path / "out", form="safetensors")
    assert (found.tensors, found.unsaved, found.errors) == (len(values), 0, ())
    got = read(tmp_path / "out")
    assert got.keys() == values.keys()
    for name, value in values.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape
        assert bits(got[name]).equal(bits(value)), name


def test_each_tensor_begins_where_its_elements_may(tmp_path: Path) -> None:
    """A reader that maps the file takes them where they are, whatever the names before them add up to."""
    narrow = [pytest.importorskip("ml_dtypes").int4, *map(np.dtype, ("int8", "bool"))]
    values = {f"n{i}": np.ones(3, dtype) for i, dtype in enumerate(narrow)}
    values |= {f"q{i}": torch.quantize_per_tensor(torch.ones(5), 0.1, 0, torch.qint8) for i in range(2)}
    values |= {f"fnuz{i}": drawn("float8_e4m3fnuz", 3) for i in range(2)}
    values |= {f"{kind}_{i}": drawn(kind, 3) for i in range(2) for kind in SAME}
    for i in range(8):
        dump = saved(tmp_path / f"dump{i}", {**values, "x" * (i + 1): torch.ones(1)})
        export(dump, tmp_path / f"out{i}", form="safetensors")
        (file,) = (tmp_path / f"out{i}").rglob("*.safetensors")
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, told in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = told["data_offsets"]
                assert (begin + first) % ((last - first) // told["shape"][0]) == 0, (i, name)


def test_what_safetensors_has_no_dtype_for_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"a": drawn("complex128", 2), "b": drawn("float8_e4m3fnuz", 3), "c": drawn("float32", 4)}
    dump = saved(tmp_path / "dump", values)
    assert main([str(dump), "--to", "safetensors", "-o", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert "holds 2 tensors of " in told.out
    assert "safetensors has no dtype for complex128" in told.err
    got = read(tmp_path / "out")
    assert got.keys() == {"b", "c"}
    assert got["b"].dtype is torch.float32 and got["b"].equal(values["b"].float())


def test_a_damaged_file_costs_one_tensor(tmp_path: Path) -> None:
    values = {name: drawn("float32", 100) for name in "abc"}
    dump = saved(tmp_path / "dump", values)
    (file,) = dump.rglob("b.*.pt")
    file.write_bytes(file.read_bytes()[:-9])
    found = export(dump, tmp_path / "out", form="safetensors")
    assert found.tensors == 2
    ((name, why),) = found.errors
    assert "b.0" in name and file.name in why
    assert read(tmp_path / "out")["c"].equal(values["c"])


def test_a_dump_without_files_is_no_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = saved(tmp_path / "dump", {"a": drawn("float32", 2)}, task="statistics")
    assert main([str(dump), "--to", "safetensors", "-o", str(tmp_path / "out")]) == 2
    assert "record with task 'tensor'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_header_says_of_which_run_it_is(tmp_path: Path) -> None:
    dump = saved(tmp_path / "dump", {"a": drawn("int8", 3), "b": drawn("float64", 2)})
    export(dump, tmp_path / "out", form="safetensors", filter="a")
    (file,) = (tmp_path / "out").rglob("*.safetensors")
    with safetensors.safe_open(file, "np") as opened:
        assert opened.metadata() == {"run": "step0/rank"}
        (name,) = opened.keys()
    assert name.startswith("a.")
    assert json.loads((tmp_path / "out/_probe_export.json").read_text())["left_out"] == 1


def test_two_tensors_of_one_slot_are_both_there(tmp_path: Path) -> None:
    dump = saved(tmp_path / "d", {"cfg": {"a": {"b": torch.ones(2)}, "a.b": torch.zeros(2)}})
    export(dump, tmp_path / "out", form="safetensors")
    (file,) = (tmp_path / "out").rglob("*.safetensors")
    found = safetensors.load_file(file)
    assert {name: float(t[0]) for name, t in found.items()} == {
        "cfg.0.debug.a.b": 1.0,
        "cfg.0.debug.a.b~2": 0.0,
    }
