"""Ascend's ``bin`` files: the samples, the command that converts them, and files that are not what they say.

The samples in data/bin and what they should become come from the project's reference (data/README.md).
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from binfiles import block, made, number, shape, written
from probe_format.errors import FormatError
from probe_kernel import cli
from probe_kernel.convert.conversion import Conversion, convert_file
from probe_kernel.files.bin_file import open_bin
from probe_kernel.files.tensor_layouts import convert
from probe_kernel.read.file_name import parse_file_name
from probe_kernel.read.loaders import contents

DATA = Path(__file__).parents[1] / "data" / "bin"
EXPECTED = DATA / "expected"
SAMPLES = sorted(p for p in DATA.iterdir() if p.is_file())
CONV = "Conv2D.Default_conv1_Conv2D-op1.3.7.1623124369613540"
MATMUL = "MatMul.Default_MatMul-op2.4.7.1623124369613999"
# -- the samples -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name.partition(".")[0])
def test_every_sample_becomes_what_lies_beside_it(path: Path, tmp_path: Path) -> None:
    outcome = convert_file(path, tmp_path, Conversion())
    assert outcome.faults == ()
    wanted = sorted(p.name for p in EXPECTED.glob(f"{path.name}.*"))
    mine = sorted(p.name for p in tmp_path.iterdir())
    assert set(wanted) <= set(mine)
    for name in wanted:
        if name.endswith(".npy"):
            theirs, ours = np.load(EXPECTED / name), np.load(tmp_path / name)
            if theirs.size:  # msaccucmp makes every empty array float64; ours keeps the dtype of the header
                assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            np.testing.assert_array_equal(ours, theirs)
        elif name.endswith(".json"):
            assert json.loads((tmp_path / name).read_text()) == json.loads((EXPECTED / name).read_text())
        else:
            assert (tmp_path / name).read_bytes() == (EXPECTED / name).read_bytes()


def test_layouts_of_the_samples(tmp_path: Path) -> None:
    first = open_bin(DATA / CONV).sections[0]
    assert first.tensor is not None and (first.tensor.format, first.tensor.dtype) == ("NC1HWC0", "float16")
    found = convert(first.load(), "NC1HWC0", "NCHW", first.tensor.original_shape)
    np.testing.assert_array_equal(found, np.load(EXPECTED / "_expect_nchw.npy"), strict=True)
    matrix = open_bin(DATA / MATMUL).sections[0]
    assert matrix.tensor is not None and matrix.tensor.format == "FRACTAL_NZ"
    for original in (matrix.tensor.original_shape, (20, 35)):
        found = convert(matrix.load(), "FRACTAL_NZ", "ND", original)
        np.testing.assert_array_equal(found, np.load(EXPECTED / "_expect_nd.npy"), strict=True)
    wide = open_bin(DATA / CONV).sections[2].load()
    np.testing.assert_array_equal(wide, np.load(EXPECTED / "_expect_bf16_as_f32.npy"), strict=True)


def test_the_reader_of_dumps_gives_the_same_tensors() -> None:
    found = contents(DATA / CONV, parse_file_name(CONV))[0]
    assert [(p.io, p.slot) for p in found][:3] == [("input", 0), ("input", 1), ("output", 0)]
    for part in found:
        np.testing.assert_array_equal(
            part.load(None), np.load(EXPECTED / f"{CONV}.{part.io}.{part.slot}.npy")
        )
        assert part.shape() == part.load(None).shape or part.shape() == ()


# -- the command -------------------------------------------------------------------------------------------


def test_convert_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "dump" / "0"
    source.mkdir(parents=True)
    for path in SAMPLES:
        (source / path.name).write_bytes(path.read_bytes())
    (source / "notes.txt").write_text("not a kernel's")
    broken = written(source, (DATA / CONV).read_bytes()[:-40], "Conv2D.Default_broken.3.7.1623124369613541")
    out = tmp_path / "out"
    assert cli.main(["convert", str(tmp_path / "dump"), "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert f"from {len(SAMPLES) + 1} bin files" in said.out
    assert str(broken) in said.err and "cut short" in said.err
    assert len(list((out / "0").glob("*.npy"))) >= len(list(EXPECTED.glob("[A-Z]*.npy")))


def test_convert_with_a_layout_names_the_shape(tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = ["convert", str(DATA / CONV), "-o", str(out), "--format", "NCHW", "--only", "input.0"]
    assert cli.main(args) == 0
    (path,) = out.iterdir()
    assert path.name == f"{CONV}.input.0.2x20x3x3.npy"
    np.testing.assert_array_equal(np.load(path), np.load(EXPECTED / "_expect_nchw.npy"), strict=True)


def test_convert_to_bin_and_msnpy(tmp_path: Path) -> None:
    assert cli.main(["convert", str(DATA / CONV), "-o", str(tmp_path / "b"), "--type", "bin"]) == 0
    names = {p.name for p in (tmp_path / "b").iterdir()}
    assert f"{CONV}.input.0.576.float16.NC1HWC0.bin" in names  # flat, as msaccucmp has it
    args = ["convert", str(DATA / CONV), "-o", str(tmp_path / "l"), "--type", "bin", "--format", "NCHW"]
    cli.main([*args, "--only", "input.0"])
    assert [p.name for p in (tmp_path / "l").iterdir()] == [f"{CONV}.input.0.2_20_3_3.float16.NCHW.bin"]
    assert cli.main(["convert", str(DATA / CONV), "-o", str(tmp_path / "m"), "--type", "msnpy"]) == 0
    for path in (tmp_path / "m").glob("*.npy"):
        name = parse_file_name(path.name)
        assert (name.op_type, name.task, name.stream, name.timestamp) == ("Conv2D", 3, 7, 1623124369613540)
        assert np.load(path).dtype == np.load(EXPECTED / f"{CONV}.{name.io}.{name.slot}.npy").dtype


def test_convert_to_pt(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert cli.main(["convert", str(DATA / MATMUL), "-o", str(tmp_path), "--type", "pt"]) == 0
    found = torch.load(tmp_path / f"{MATMUL}.input.0.pt", weights_only=True)
    np.testing.assert_array_equal(found.numpy(), np.load(EXPECTED / f"{MATMUL}.input.0.npy"), strict=True)


def test_nothing_to_convert_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["convert", str(tmp_path), "-o", str(tmp_path / "o")]) == 1
    assert "no bin files" in capsys.readouterr().err
    assert cli.main(["convert", str(tmp_path / "none"), "-o", str(tmp_path / "o")]) == 1
    path = written(tmp_path, made(2, 2, (4,), bytes(8)))
    assert cli.main(["convert", str(path), "-o", str(tmp_path)]) == 1
    assert "folder of their own" in capsys.readouterr().err


# -- dtypes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "raw", "count", "wanted"),
    [
        (27, b"\x80\x3f\x80\xff", 2, np.float32([1, -np.inf])),
        (28, b"\xf1\x07", 3, np.int8([1, -1, 7])),
        (29, b"\x05\x01", 9, np.uint8([1, 0, 1, 0, 0, 0, 0, 0, 1])),
        (32, np.float16([1, 2, 3, 4]).tobytes(), 2, np.complex64([1 + 2j, 3 + 4j])),
        (34, b"\x3c\x7c", 2, np.float32([1, np.inf])),
        (35, b"\x38\x7e", 2, np.float32([1, 448])),
        (33, b"\x12\x34", 2, np.uint8([0x12, 0x34])),
        (36, b"\x12\x34", 2, np.uint8([0x12, 0x34])),
        (11, b"\x01\x00", 2, np.array([True, False])),
        (12, np.float64([0.5]).tobytes(), 1, np.float64([0.5])),
    ],
)
def test_dtypes(tmp_path: Path, code: int, raw: bytes, count: int, wanted: np.ndarray) -> None:
    path = written(tmp_path, made(code, 2, (count,), raw))
    np.testing.assert_array_equal(open_bin(path).sections[0].load(), wanted, strict=True)


def test_a_dtype_without_values_costs_only_its_tensor(tmp_path: Path) -> None:
    path = written(tmp_path, made(13, 2, (3,), b"abc"))
    outcome = convert_file(path, tmp_path, Conversion())
    assert not outcome.written and "string" in outcome.faults[0]


# -- files that are not what they say -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "length of a header"),
        (b"\x10", "length of a header"),
        (struct.pack("<Q", 1 << 60) + bytes(30), "no readable header"),
        (struct.pack("<QI", 40, 0x5A5A5A5A) + bytes(60), "Nano"),
        (made(2, 2, (4,), bytes(6)), "6 bytes, and float16"),
        (made(2, 2, (1 << 40, 1 << 40), bytes(6)), "6 bytes, and float16"),
        (made(2, 2, (4,), bytes(8))[:-1], "cut short"),
        (struct.pack("<Q", 3) + b"\x0f\xff\xff", "wire type"),
    ],
)
def test_bad_files_are_told(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(FormatError, match=said):
        for section in open_bin(path).sections:
            section.load()


def test_a_file_of_the_first_version(tmp_path: Path) -> None:
    raw = np.float32([1, 2]).tobytes()
    tensor = number(1, 1) + number(2, 2) + shape(3, (2,)) + block(5, raw)
    path = written(tmp_path, block(1, b"1.0") + block(3, tensor))
    np.testing.assert_array_equal(open_bin(path).sections[0].load(), np.float32([1, 2]), strict=True)
