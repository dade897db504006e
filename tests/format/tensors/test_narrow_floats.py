"""bfloat16 and the 8-bit floats as float32, and back without a bit lost."""

import numpy as np
import pytest
from probe_format.tensors.narrow_floats import bits_of, narrow_name, widen

WIDTHS = {"bfloat16": np.uint16, "float8e4m3fn": np.uint8, "float8e5m2": np.uint8, "hifloat8": np.uint8}


@pytest.mark.parametrize(("name", "kind"), WIDTHS.items())
def test_every_code_comes_back(name, kind, tmp_path):
    codes = np.arange(np.iinfo(kind).max + 1).astype(kind).reshape(2, -1)
    wide = widen(codes, name)
    assert wide.dtype == np.float32 and wide.shape == codes.shape
    np.save(tmp_path / "x.npy", wide)  # no arithmetic on the way: NaN payloads live
    np.testing.assert_array_equal(bits_of(np.load(tmp_path / "x.npy"), name), codes)
    assert bits_of(wide, name).dtype == kind


@pytest.mark.parametrize(
    ("name", "codes", "values"),
    [
        ("bfloat16", [0x3F80, 0xC000, 0x7F80, 0x0001, 0x7F7F], [1, -2, np.inf, 2.0**-133, 3.3895314e38]),
        ("float8e4m3fn", [0x38, 0xC0, 0x7E, 0x01, 0x08], [1, -2, 448, 2.0**-9, 2.0**-6]),
        ("float8e5m2", [0x3C, 0xC0, 0x7B, 0x7C, 0xFC, 0x01], [1, -2, 57344, np.inf, -np.inf, 2.0**-16]),
        # MindSpore's own encoding of these values (2.10)
        ("hifloat8", [0x08, 0x0C, 0x91, 0x14, 0x6E, 0x6F, 0x01], [1, 1.5, -2.25, 3, 32768, np.inf, 2.0**-22]),
    ],
)  # fmt: skip
def test_known_values(name, codes, values):
    got = widen(np.array(codes, WIDTHS[name]), name)
    np.testing.assert_array_equal(got, np.array(values, np.float32))


@pytest.mark.parametrize(
    ("name", "codes"),
    [("bfloat16", [0x7FC0, 0xFF81]), ("float8e4m3fn", [0x7F, 0xFF]), ("float8e5m2", [0x7D, 0x7E, 0xFF]),
     ("hifloat8", [0x80])],
)  # fmt: skip
def test_nan(name, codes):
    assert np.isnan(widen(np.array(codes, WIDTHS[name]), name)).all()


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e5m2", "bfloat16"])
def test_agrees_with_torch(name):
    torch = pytest.importorskip("torch")
    codes = np.arange(np.iinfo(WIDTHS[name]).max + 1).astype(WIDTHS[name])
    raw = torch.frombuffer(bytearray(codes.tobytes()), dtype=getattr(torch, name.replace("8e", "8_e")))
    np.testing.assert_array_equal(widen(codes, name), raw.float().numpy())


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_agrees_with_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.arange(256, dtype=np.uint8)
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"this ml_dtypes has no {name}")
    right = bits.view(getattr(ml_dtypes, name)).astype(np.float32)
    np.testing.assert_array_equal(widen(bits, name.replace("_", "")), right)


@pytest.mark.parametrize("name", WIDTHS)
def test_other_values_are_refused(name):
    with pytest.raises(ValueError):
        bits_of(np.float32([1.0, 1.00001]), name)


def test_shapes():
    for name, kind in WIDTHS.items():
        for shape in ((), (0,), (0, 3), (2, 1)):
            codes = np.full(shape, 1, kind)
            assert bits_of(widen(codes, name), name).shape == shape


def test_names():
    assert narrow_name("BFloat16") == narrow_name("torch.bfloat16") == "bfloat16"
    assert narrow_name("Float8E4M3FN") == narrow_name("torch.float8_e4m3fn") == "float8e4m3fn"
    assert narrow_name("HiFloat8") == "hifloat8"
    assert narrow_name("Float16") is None and narrow_name("torch.float8_e4m3fnuz") is None
