"""Files that a full disk or a stopped copy leaves: each is named, and what is whole in them is read all the same."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from binfiles import block, made, number, written
from probe_format.errors import DamagedError
from probe_kernel import cli
from probe_kernel.files.bin_file import open_bin
from trees import CONV, TIME, conv

FLOATS = made(1, 2, (3,), np.float32([1, 2, 3]).tobytes())
BIN = f"Conv2D.{CONV}.2.7.{TIME}"


@pytest.mark.parametrize("size", [8, 9, 12, 4096])
def test_a_bin_file_of_zeros_is_named(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "0/20240102030405/6/model/1/0"
    source.mkdir(parents=True)
    bad = written(source, bytes(size), BIN)
    good = written(source, FLOATS)
    with pytest.raises(DamagedError, match="empty header"):
        open_bin(bad)
    assert cli.main(["check", str(tmp_path / "0")]) == 3
    assert str(bad) in capsys.readouterr().err
    assert cli.main(["convert", str(source), "-o", str(tmp_path / "out")]) == 3
    assert str(bad) in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"{good.name}.output.0.npy"]
    assert cli.main(["convert", str(bad), "-o", str(tmp_path / "one")]) == 1  # and nothing else was there


def test_bytes_behind_the_last_tensor_are_named_and_the_tensor_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "0/20240102030405/6/model/1/0"
    source.mkdir(parents=True)
    path = written(source, FLOATS + bytes(1000))
    file = open_bin(path)
    assert len(file.problems) == 1 and "1000 bytes behind its last tensor, output.0" in file.problems[0]
    np.testing.assert_array_equal(file.sections[0].load(), [1, 2, 3])
    assert cli.main(["check", str(tmp_path / "0")]) == 3
    assert "1000 bytes behind" in capsys.readouterr().err
    assert cli.main(["convert", str(source), "-o", str(tmp_path / "out")]) == 3
    assert "1000 bytes behind" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(tmp_path / f"out/{path.name}.output.0.npy"), [1, 2, 3])


def test_a_header_without_a_tensor_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = block(1, b"2.0") + number(2, TIME) + block(6, b"Default/x/Op-op1")
    path = written(tmp_path, struct.pack("<Q", len(header)) + header + bytes(5))
    assert open_bin(path).op_name == "Default/x/Op-op1"
    assert cli.main(["check", str(tmp_path)]) == 3
    err = capsys.readouterr().err
    assert "names no tensor, and 5 bytes that nothing describes" in err and str(path) in err


def test_an_empty_file_of_plain_bytes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 64 zeros nobody can tell: they are 32 numbers, and nothing says how many there should be."""
    name = f"{BIN}.input.0.ND.BF16"
    conv(tmp_path / "rank_0/Net/0/0")
    (tmp_path / "rank_0/Net/0/0" / name).write_bytes(b"")
    assert cli.main(["check", str(tmp_path)]) == 3
    assert name in capsys.readouterr().err


IN_AN_ITERATION = [
    f"{BIN}.input.0.DefaultFormat.float16.npy", f"{BIN}.input.0.2x3.npy", f"{BIN}.input.0.6.float32.ND.bin",
    f"Conv2D.{CONV}.json", "Opdebug.Node_OpDebug.2.7.16.output.0.json", "Opdebug.Node_OpDebug.2.7.16", f"{BIN}.csv",
    "statistic.csv", "12345678",
]  # fmt: skip
BESIDE = [
    "graphs/ms_output_trace_code_graph_0.ir", "execution_order/ms_execution_order_graph_0.csv",
    ".dump_metadata/config.json",
]  # fmt: skip
ZEROS_ALONE = "execution_order/ms_global_execution_order_graph_0.csv"  # empty: the graph never ran


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in [*(f"Net/0/0/{name}" for name in IN_AN_ITERATION), *BESIDE]
          for content in (b"", bytes(64))),
        (ZEROS_ALONE, bytes(64)),
    ],
)  # fmt: skip
def test_every_other_file_too(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conv(tmp_path / "rank_0/Net/0/0")
    path = tmp_path / "rank_0" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert cli.main(["check", str(tmp_path)]) == 3
    assert path.name in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "show", "statistics", "export"])
def test_a_tensor_beyond_the_memory_is_named(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "in/rank_0/Net/0/0"
    conv(folder)
    path = folder / f"Op.Default_x_Op-op1.2.7.{TIME}.input.0.DefaultFormat.Float64.npy"
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 30,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (8 << 30))  # sparse: no disk is used
    program = (
        "import resource, sys; from probe_kernel import cli; "
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); sys.exit(cli.main(sys.argv[1:]))"
    )
    out = ["-o", str(tmp_path / "out")] if command in ("statistics", "export") else []
    done = subprocess.run(
        [sys.executable, "-c", program, command, str(tmp_path / "in"), *out], capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    assert "memory" in said and "Traceback" not in said
    assert done.returncode == 3, said


def test_what_cannot_be_read_is_among_the_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    next(folder.glob("*input.1*")).write_bytes(b"")
    assert cli.main(["show", str(tmp_path), "--bad"]) == 3
    said = capsys.readouterr()
    assert "1 of 1 kernels" in said.out and "input.1" in said.err


def test_one_damaged_tensor_costs_no_other_its_statistics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Met in a dump by MindSpore 2.10 on a CPU: Adam's float16 outputs have float32's bytes behind their header."""
    folder = tmp_path / "rank_0/Net/0/0"
    conv(folder)
    for at in (0, 1):
        bad = next(folder.glob(f"*input.{at}*"))
        bad.write_bytes(bad.read_bytes() + bytes(12))
    assert cli.main(["statistics", str(tmp_path)]) == 3
    err = capsys.readouterr().err
    assert "input.0" in err and "input.1" in err and "holds more than its header says" in err
    lines = (folder / "statistic.csv").read_text().splitlines()
    assert len(lines) == 2 and ",output,0," in lines[1]
