"""``probe kernel convert`` as people meet it: names that clash, links, Ctrl-C, files from elsewhere, overflows."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import probe_kernel
import pytest
from binfiles import made, written
from probe_format.errors import DamagedError
from probe_format.tensors import load_npy
from probe_kernel import cli
from probe_kernel.commands import writing as converter
from probe_kernel.convert import conversion
from probe_kernel.convert.destination import short_name
from probe_kernel.files.bin_file import open_bin
from probe_kernel.files.dump_data import parse_dump_data
from probe_kernel.files.tensor_layouts import convert
from probe_kernel.read.listing import read_mapping
from probe_kernel.read.overflow import opdebug_json
from trees import close

FLOATS = made(1, 2, (3,), np.float32([1, 2, 3]).tobytes())
LONG = "y" * 240


def run(source: Path, out: Path, *more: str) -> int:
    return cli.main(["convert", str(source), "-o", str(out), *more])


# -- names -------------------------------------------------------------------------------------------------


def test_two_files_that_would_become_one_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """msnpy names have the operator without its scopes, so those of two scopes can be the same."""
    source = tmp_path / "in"
    source.mkdir()
    one = written(source, FLOATS, "Op.Default_a_Op-op1.1.2.3")
    two = written(source, made(1, 2, (3,), np.float32([7, 8, 9]).tobytes()), "Op.Default_b_Op-op1.1.2.3")
    assert run(source, tmp_path / "out", "--type", "msnpy", "--workers", "1") == 3
    (path,) = (tmp_path / "out").iterdir()
    np.testing.assert_array_equal(np.load(path), [1, 2, 3])
    said = capsys.readouterr().err
    assert str(one) in said and str(two) in said and "another --type" in said
    assert run(source, tmp_path / "out", "--type", "msnpy", "--workers", "1") == 3  # a second time: the same
    assert run(source, tmp_path / "other") == 0


def test_names_of_255_bytes_are_shortened_as_by_msaccucmp(tmp_path: Path) -> None:
    for length in (254, 255):
        name = f"Op.{'y' * (length - len('Op..3.7.16.output.0.npy'))}.3.7.16"
        assert len(f"{name}.output.0.npy") == length
        run(written(tmp_path, FLOATS, name), tmp_path / "out")
    ((new, old),) = read_mapping(tmp_path / "out")[0].items()
    assert len(old) == 255 and short_name(old) == new and len(new) < 50
    np.testing.assert_array_equal(np.load(tmp_path / "out" / new), [1, 2, 3])
    run(written(tmp_path, FLOATS, name), tmp_path / "out")  # again: no second line
    assert len((tmp_path / "out/mapping.csv").read_text().splitlines()) == 1


def test_a_renamed_source_is_converted_under_its_true_name(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    written(source, FLOATS, "12345678")
    (source / "mapping.csv").write_text("12345678,Op.Default_x_Op-op1.1.2.3\n")
    assert run(source, tmp_path / "out") == 0
    assert run(source / "12345678", tmp_path / "one") == 0
    for out in ("out", "one"):
        np.testing.assert_array_equal(
            np.load(tmp_path / out / "Op.Default_x_Op-op1.1.2.3.output.0.npy"), [1, 2, 3]
        )


# -- folders -----------------------------------------------------------------------------------------------


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere/20240102030405/6/model/1/0"
    real.mkdir(parents=True)
    written(real, FLOATS)
    tree = tmp_path / "dump"
    tree.mkdir()
    (tree / "0").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (real / "round").symlink_to(tree, target_is_directory=True)
    assert run(tree, tmp_path / "out") == 0
    assert len(list((tmp_path / "out").rglob("*.npy"))) == 1
    (iteration,) = probe_kernel.open(tree).iterations
    assert (iteration.folder.layout, iteration.folder.step) == ("o2", 0)


def test_a_folder_that_cannot_be_opened_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    (source / "closed").mkdir(parents=True)
    written(source, FLOATS)
    close(source / "closed", monkeypatch)
    assert run(source, tmp_path / "out") == 1
    assert "Permission denied" in capsys.readouterr().err


def test_out_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert run(written(tmp_path, FLOATS), tmp_path / "out" / "x") == 1
    assert "out" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


# -- stopping ----------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_whole_files_and_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(20):
        written(source, FLOATS, f"Op.{LONG}.1.2.{100 + number}")

    class Stopped(converter.ProgressLine):
        def show(self, line: str, *, now: bool = False) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(converter, "ProgressLine", Stopped)
    assert run(source, tmp_path / "out", "--workers", "2") == 130
    assert "stopped" in capsys.readouterr().err
    files = {path.name for path in (tmp_path / "out").glob("*.npy")}
    assert 0 < len(files) < 20
    names, problems = read_mapping(tmp_path / "out")
    assert set(names) == files and not problems
    for name in files:
        np.testing.assert_array_equal(np.load(tmp_path / "out" / name), [1, 2, 3])


def test_ctrl_c_elsewhere_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(source: Path) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(converter, "bin_files", stop)
    assert run(tmp_path, tmp_path / "out") == 130


def test_many_cores_are_not_many_tensors_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pool = conversion.ThreadPoolExecutor
    monkeypatch.setattr(conversion, "ThreadPoolExecutor", lambda n, name: asked.append(n) or pool(n, name))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(128)))
    path = written(tmp_path, FLOATS)
    assert run(path, tmp_path / "out") == 0
    assert run(path, tmp_path / "out", "--workers", "20") == 0
    assert asked == [8, 20]


# -- arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["0", "-1", "many"])
def test_workers_must_be_some(workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(written(tmp_path, FLOATS), tmp_path / "out", f"--workers={workers}")
    assert stopped.value.code == 2 and "number of threads" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--shape", "3"], "--format"),
        (["--shape", "0,3", "--format", "ND"], "above 0"),
        (["--shape=-1,3", "--format", "ND"], "above 0"),
        (["--shape", "2,x"], "whole numbers"),
        (["--format", "NHCW"], "NCHW"),
        (["--only", "input.9"], "there is no input.9"),
    ],
)
def test_arguments_that_mean_nothing(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(written(tmp_path, FLOATS), tmp_path / "out", *more) == 1
    assert said in capsys.readouterr().err


# -- shapes and dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(0, 1 << 62, 1 << 62), (1,) * 64 + (0,)])
def test_a_shape_that_no_array_can_have(dims: tuple[int, ...], tmp_path: Path) -> None:
    path = written(tmp_path, made(1, 2, dims, b""))
    with pytest.raises(DamagedError, match="dimensions"):
        open_bin(path).sections[0].load()
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {dims}, }}\n".encode()
    npy = tmp_path / "x.npy"
    npy.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(DamagedError, match="its shape"):
        load_npy(npy)


def test_millions_of_tiny_fields_are_no_header() -> None:
    with pytest.raises(DamagedError, match="fields"):
        parse_dump_data(memoryview(b"\x10\x01" * (1 << 21)))


def test_codes_of_eight_bits_keep_their_shape(tmp_path: Path) -> None:
    raw = bytes(range(64))
    path = written(tmp_path, made(33, 3, (1, 2, 1, 1, 32), raw, (1, 40, 1, 1)))
    values = open_bin(path).sections[0].load()
    assert values.shape == (1, 2, 1, 1, 32)
    assert run(path, tmp_path / "out", "--format", "NCHW") == 0
    (npy,) = (tmp_path / "out").iterdir()
    np.testing.assert_array_equal(np.load(npy).ravel(), np.arange(40))
    assert run(path, tmp_path / "bin", "--type", "bin") == 0
    (part,) = (tmp_path / "bin").iterdir()
    assert part.name.endswith(".output.0.64.hifloat8.NC1HWC0.bin") and part.read_bytes() == raw


def test_a_matrix_called_nchw_is_nd(tmp_path: Path) -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(convert(values, "NCHW", "ND", (5, 7)), values)
    assert (
        run(written(tmp_path, made(1, 0, (5, 7), values.tobytes())), tmp_path / "out", "--format", "ND") == 0
    )


def test_bfloat16_bytes_by_msaccucmp_are_float32(tmp_path: Path) -> None:
    """It widens the values and keeps the name of the dtype."""
    wide = np.float32([1, -2, 0.5])
    (tmp_path / "Op.x.1.2.16.output.0.3.bfloat16.ND.bin").write_bytes(wide.tobytes())
    (tmp_path / "Op.x.1.2.16.output.1.3.bfloat16.ND.bin").write_bytes(b"\x80\x3f\x00\xc0\x00\x3f")
    (tmp_path / "Op.x.1.2.16.output.2.3.float8_e5m2.ND.bin").write_bytes(np.float64(wide).tobytes())
    (iteration,) = probe_kernel.open(tmp_path).iterations
    for slot in iteration.kernels[0].slots:
        np.testing.assert_array_equal(slot.load(), wide, strict=True)


def test_a_scalar_is_one_element_but_for_torch(tmp_path: Path) -> None:
    path = written(tmp_path, made(1, 2, (), np.float32([4]).tobytes()))
    assert run(path, tmp_path / "npy") == 0
    assert np.load(next((tmp_path / "npy").iterdir())).shape == (1,)
    torch = pytest.importorskip("torch")
    assert run(path, tmp_path / "pt", "--type", "pt") == 0
    assert torch.load(next((tmp_path / "pt").iterdir()), weights_only=True).shape == ()


# -- overflows ---------------------------------------------------------------------------------------------


def new_record(unit: int, version: int, words: list[int]) -> bytes:
    head = struct.pack("<6I", 0x5A5A5A5A, version, 1, unit, 0, 8 * len(words))
    return head + struct.pack(f"<{len(words)}Q", *words)


@pytest.mark.parametrize(
    ("unit", "version", "words", "named"),
    [
        (0, 1, range(14), {"acc_type": "AIC", "pc_start": "0x6", "block_id": 9, "status": [10, 11, 12, 13]}),
        (1, 0, range(11), {"acc_type": "AIV", "para_base": "0x7", "status": 10}),
        (2, 1, range(8), {"acc_type": "AICPU", "cpu_id": 5, "thread_id": 6, "status": 7}),
        (3, 1, range(10), {"acc_type": "SDMA", "src_addr": "0x6", "channel_id": 8, "status": 9}),
    ],
)
def test_overflow_records_of_the_new_form(
    unit: int, version: int, words: range, named: dict[str, Any], tmp_path: Path
) -> None:
    record = new_record(unit, version, list(words))
    folder = tmp_path / "0/20240102030405/6/model/1/0"
    folder.mkdir(parents=True)
    path = written(folder, made(4, 2, (len(record),), record), "Opdebug.Node_OpDebug.1.2.16")
    assert run(path, tmp_path / "out") == 0
    (json_path,) = (tmp_path / "out").iterdir()
    assert json_path.name == "Opdebug.Node_OpDebug.1.2.16.output.0.json"
    said = json.loads(json_path.read_text())
    assert (said["magic"], said["version"]) == ("0x5a5a5a5a", version)
    assert {**said["acc_list"], **said["acc_list"]["data"]}.items() >= named.items()
    # The tree says the same, before and after converting.
    for tree in (tmp_path / "0", tmp_path / "out"):
        (iteration,) = probe_kernel.open(tree).iterations
        (overflow,) = iteration.overflows
        assert overflow.tasks == ((2, 1),) and overflow.units == said
        assert iteration.kernels == ()


def test_a_record_cut_short_is_told_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DamagedError, match="cut short"):
        opdebug_json(np.frombuffer(new_record(0, 1, [1] * 13), np.uint8))
    with pytest.raises(DamagedError, match="cut short"):
        opdebug_json(np.frombuffer(new_record(0, 1, [])[:20], np.uint8))
    for iteration in (0, 1):
        folder = tmp_path / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        np.save(folder / "Op.x.1.2.16.output.0.ND.Float32.npy", np.float32([1]))
    (tmp_path / "rank_0/Net/0/0/Opdebug.Node_OpDebug.1.2.16.output.0.json").write_text("{")
    for command in ("show", "check"):
        assert cli.main([command, str(tmp_path)]) == 3
        said = capsys.readouterr()
        assert "iteration 1" in said.out and "Opdebug" in said.err
