"""Tensor files that were changed by accident or by hand: found, without unpickling and in bounded memory."""

import io
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from corpus_cases import copied, edit, rewrite, tensor_in
from probe_format import jsonio, open
from probe_format.cli import main
from probe_format.errors import DamagedError, FormatError
from probe_format.read.tensor_file import TensorFiles
from probe_format.read.verify import verify
from probe_format.tensors import array_object, load_npy, load_pt, npy_bytes, pt_bytes, write_parts
from probe_format.tensors.narrow_floats import widen
from probe_format.tensors.pt_read import read_pt
from probe_format.tensors.stats import stats_json, stats_of

INPUT = "Module.fc.Linear.forward.0.input.0.pt"
WEIGHT = "Module.fc.Linear.forward.0.parameters.weight.npy"


def contents(parts):
    return b"".join(bytes(part) for part in parts)


def flips(raw, every=1):
    """The bytes with one bit of each byte flipped, each of the eight in turn: (place, bytes)."""
    for at in range(0, len(raw), every):
        yield at, raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]


@pytest.fixture
def dump(tmp_path):
    """A complete dump that may be changed: its rank folder. Its records have no checksum of the files' bytes."""
    folder = copied(tmp_path)
    rewrite(folder, "dump.json", re.sub(rb',"data_crc32":"\w+"', b"", (folder / "dump.json").read_bytes()))
    return folder


def damage(folder, name):
    """What verify says of one tensor file."""
    (verdict,) = verify(folder)
    assert verdict.state == ("damaged" if verdict.problems else "complete")
    assert all(len(problem) <= 1000 for problem in verdict.problems)
    return "\n".join(problem for problem in verdict.problems if name in problem)


@pytest.mark.parametrize("by", ["probe", "torch"])
def test_after_any_bit_flip_a_pt_file_is_damaged_or_loads_the_same(tmp_path, by):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    raw = contents(pt_bytes("float32", (2, 3), tensor.numpy().tobytes()))
    if by == "torch":
        file = io.BytesIO()
        torch.save(tensor, file)
        raw = file.getvalue()
    path = tmp_path / "x.pt"
    path.write_bytes(raw)
    assert read_pt(path).crc == zlib.crc32(tensor.numpy().tobytes())
    whole = 0
    for at, changed in flips(raw):
        path.write_bytes(changed)
        try:
            read_pt(path)
        except FormatError:
            continue
        whole += 1
        loaded = torch.load(path, weights_only=True)
        same = (loaded.dtype, loaded.stride(), loaded.requires_grad) == (tensor.dtype, (3, 1), False)
        assert same and torch.equal(loaded, tensor), f"byte {at}"
    assert whole < len(raw) / 3  # padding and dates
    for size in range(0, len(raw), 7):
        path.write_bytes(raw[:size])
        with pytest.raises(DamagedError, match=re.escape(str(path))):
            load_pt(path)


def of_file(folder, name):
    """The tensor of a dump whose file has this name."""
    tensors = (tensor for record in open(folder).ranks[0].records for tensor in record.tensors)
    return next(tensor for tensor in tensors if tensor.json.get("data_name") == name)


def test_after_any_bit_flip_an_npy_file_is_damaged_or_loads_the_same(dump):
    tensor = of_file(dump, WEIGHT)
    raw, before = tensor.file.read_bytes(), np.load(tensor.file)
    for at, changed in flips(raw):
        tensor.file.write_bytes(changed)
        if not TensorFiles(checksums=True, own=True).problem(tensor):
            after = np.load(tensor.file, allow_pickle=False)
            assert (after.dtype, after.shape) == (before.dtype, before.shape), f"byte {at}"
            assert after.tobytes() == before.tobytes(), f"byte {at}"
    for size in range(len(raw)):
        tensor.file.write_bytes(raw[:size])
        with pytest.raises(DamagedError, match=re.escape(str(tensor.file))):
            load_npy(tensor.file)


@pytest.mark.parametrize(("name", "every"), [(INPUT, 7), (WEIGHT, 1)])
def test_any_bit_flip_is_found_where_the_record_has_the_checksum_of_the_file(tmp_path, name, every):
    tensor = of_file(copied(tmp_path), name)
    for at, changed in flips(tensor.file.read_bytes(), every):
        tensor.file.write_bytes(changed)
        assert TensorFiles(checksums=False, own=True).problem(tensor), f"byte {at}"


@pytest.fixture
def files(tmp_path):
    """The folder of the tensor files of a dump that is made by hand in ``tmp_path``."""
    (tmp_path / "dump_tensor_data").mkdir()
    return tmp_path / "dump_tensor_data"


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("suffix", ["npy", "pt"])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64"]
)
def test_the_numbers_of_the_record_are_those_of_the_file(tmp_path, files, dtype, suffix, own):
    """As in a dump by msprobe, whose records have no checksum; what has another Max is another tensor's file."""
    true = np.random.default_rng(0).normal(size=(3, 5)) * 40
    if dtype == "bfloat16":
        bits = (true.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        true = widen(bits, dtype)
        stored, raw = true, bits.tobytes()
    else:
        true = stored = true.clip(0, None).astype(dtype) if dtype in ("uint8", "bool") else true.astype(dtype)
        raw = true.tobytes()
    name = f"x.{suffix}"
    write_parts(files / name, npy_bytes(stored) if suffix == "npy" else pt_bytes(dtype, true.shape, raw))
    found = stats_json(stats_of(true))
    said = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [3, 5], **found, "data_name": name}
    check = TensorFiles(checksums=False, own=own)
    assert check.problem(tensor_in(tmp_path, said)) == ""
    for key in {"Max", "Min", "Mean", "Norm"} & found.keys():
        other = {**said, key: not said[key] if dtype == "bool" and key != "Norm" else said[key] * 1.01 + 1}
        problem = check.problem(tensor_in(tmp_path, other))
        assert (
            problem.startswith(f"its file {name} has the {key} ") if own or key != "Norm" else problem == ""
        )


@pytest.mark.parametrize("values", [[1.0, np.nan], [1.0, np.inf], [-np.inf, 2.0]])
def test_numbers_that_are_not_finite_are_compared_too(tmp_path, files, values):
    values = np.float32(values)
    write_parts(files / "x.npy", npy_bytes(values))
    found = jsonio.loads(jsonio.dumps(stats_json(stats_of(values))))
    said = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **found, "data_name": "x.npy"}
    check = TensorFiles(checksums=False, own=True)
    assert check.problem(tensor_in(tmp_path, said)) == ""
    assert "its record says 7" in check.problem(tensor_in(tmp_path, {**said, "Max": 7.0}))
    assert "int too large" in check.problem(tensor_in(tmp_path, {**said, "Max": 10**400}))


def test_a_sketch_of_other_elements_is_told(tmp_path, files):
    values = np.random.default_rng(2).normal(size=(40, 3)).astype(np.float32)
    write_parts(files / "x.npy", npy_bytes(values))
    said = {**array_object(values, sketch=True), "data_name": "x.npy"}
    check = TensorFiles(checksums=False, own=True)
    assert check.problem(tensor_in(tmp_path, said)) == ""
    said["sketch"][0] = 0.5
    assert "has another sketch" in check.problem(tensor_in(tmp_path, said))


@pytest.mark.parametrize("dtype", [">f4", "<i4"])
def test_an_npy_file_of_another_dtype_is_damaged(dump, dtype):
    np.save(dump / "dump_tensor_data" / WEIGHT, np.zeros((2, 2), dtype))
    assert "not the float32 of torch.float32" in damage(dump, WEIGHT)


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(f"archive/{name.replace('__', '/').replace('_', '.')}"), content)
    return bytearray(file.getvalue())


def stored(pickled, data=bytes(16)):
    """A .pt file as our own writer lays it out, with another pickle or other data."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made_:
        for name, content in (
            ("data.pkl", pickled),
            ("byteorder", b"little"),
            ("version", b"3\n"),
            ("data/0", data),
        ):
            info = zipfile.ZipInfo(f"archive/{name}")
            info.create_system = info.create_version = info.extract_version = 0
            padding = (
                -(file.tell() + 34 + len(info.filename)) % 64
            )  # so that the content is at a multiple of 64
            info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
            made_.writestr(info, content)
            info.extra, info.external_attr = b"", 0  # in the directory at the end
    return file.getvalue()


def integer(n):
    return b"J" + struct.pack("<i", n) if n < 1 << 31 else b"\x8a\x09" + n.to_bytes(9, "little")


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def made(shape, strides, offset=0, count=4, rebuild=b"_rebuild_tensor_v2"):
    ints = lambda values: b"(" + b"".join(integer(n) for n in values) + b"t"  # noqa: E731
    return b"".join(
        [
            b"\x80\x02ctorch._utils\n" + rebuild + b"\n((" + text("storage") + b"ctorch\nFloatStorage\n",
            text("0") + text("cpu") + integer(count) + b"tQ" + integer(offset),
            ints(shape) + ints(strides) + b"\x89ccollections\nOrderedDict\n)RtR.",
        ]
    )


def test_the_files_below_are_laid_out_as_our_writer_does():
    data = np.arange(4, dtype=np.float32).tobytes()
    assert stored(made((2, 2), (2, 1)), data) == contents(pt_bytes("float32", (2, 2), data))


class Hostile:
    def __reduce__(self):
        return eval, ("__import__('pathlib').Path('/tmp/probe-was-here').touch()",)


BAD_PT = {
    "another shape in a larger storage": stored(made((1, 2), (2, 1), count=8), bytes(32)),
    "a view beyond its storage": stored(made((2, 2), (2, 1), offset=1)),
    "a shape of 10^23": stored(made((1 << 62,), (1,))),
    "one element many times": stored(made((2, 2), (0, 0))),
    "a million elements of four": stored(made((1000, 1000), (0, 0))),
    "a storage that is larger in the pickle": stored(made((2, 2), (2, 1), count=1 << 40)),
    "a storage that is smaller in the pickle": stored(made((2, 2), (2, 1), count=4), bytes(32)),
    "a hostile pickle": stored(pickle.dumps(Hostile(), 2)),
    "a hostile pickle of protocol 4": stored(pickle.dumps(Hostile(), 4)),
    "more after the pickle": stored(made((2, 2), (2, 1)) + b"."),
    "a pickle without an end": stored(made((2, 2), (2, 1))[:-1]),
    "another function": stored(made((2, 2), (2, 1), rebuild=b"_import_dotted_name")),
    "marks": stored(b"\x80\x02" + b"(" * 60000 + b"."),
    "a pickle of a megabyte": stored(made((2, 2), (2, 1)) + bytes(1 << 20)),
    "not a zip": b"x" * 500,
    "a pickle alone": b"\x80\x02.",
    "the first bytes of a zip": b"PK\x03\x04" + bytes(40),
    "an empty zip": bytes(archive()),
    "a bomb": b"",  # below
}


def bomb():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made_:
        made_.writestr("archive/data.pkl", bytes(16 << 20))
    return file.getvalue()


@pytest.mark.parametrize("case", BAD_PT)
def test_a_crafted_pt_file_is_damaged_and_never_runs(dump, case, tmp_path):
    raw = bomb() if case == "a bomb" else BAD_PT[case]
    (dump / "dump_tensor_data" / INPUT).write_bytes(raw)
    found = damage(dump, INPUT)
    assert INPUT in found
    assert not Path("/tmp/probe-was-here").exists()


def test_what_is_right_stays_right(dump):
    """The twin of the crafted ones: the same layout with the truth in it."""
    torch = pytest.importorskip("torch")
    path = dump / "dump_tensor_data" / INPUT
    values = load_pt(path)
    raw = values.numpy().tobytes()
    path.write_bytes(stored(made((2, 2), (2, 1)), raw))
    assert damage(dump, INPUT) == ""
    # As msprobe saves a part of something larger: with all of it.
    torch.save(torch.cat([torch.zeros(1, 2), values, torch.ones(3, 2)])[1:3], path)
    assert path.stat().st_size > 0 and damage(dump, INPUT) == ""
    torch.save(torch.nn.Parameter(values), path)
    assert damage(dump, INPUT) == ""
    torch.save(values.T.contiguous().T, path)
    assert damage(dump, INPUT) == ""
    torch.save((values + 1).T.contiguous().T, path)
    assert "CRC-32" in damage(dump, INPUT)


@pytest.mark.parametrize("make", ["sparse", "quantised", "bfloat16", "float8_e5m2", "empty"])
def test_what_torch_saves_of_other_tensors_can_be_checked(tmp_path, make):
    torch = pytest.importorskip("torch")
    value = torch.arange(6.0).reshape(2, 3)
    if make == "sparse":
        value = value.to_sparse()
    elif make == "quantised":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that quantising is deprecated: said once in a process
            value = torch.quantize_per_tensor(value, 0.1, 0, torch.qint8)
    elif make == "empty":
        value = torch.empty(2, 0)
    else:
        value = value.to(getattr(torch, make))
    torch.save(value, tmp_path / "x.pt")
    assert read_pt(tmp_path / "x.pt").tensors
    load_pt(tmp_path / "x.pt")


def test_what_is_no_tensor_cannot_be_checked_and_says_so(dump):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(2, 2)}, dump / "dump_tensor_data" / INPUT)
    assert "cannot be checked: its pickle" in damage(dump, INPUT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f'"{INPUT}"', "[]"),
        (f'"{INPUT}"', "{}"),
        (f'"{INPUT}"', '"' + "n" * 5000 + '"'),
        (f'"{INPUT}"', '"\\ud800"'),
        (f'"{INPUT}"', '"../report.json"'),
        ('"shape":[2,2]', '"shape":[2e0,true]'),
        ('"shape":[2,2]', '"shape":[' + "9," * 100_000 + "9]"),
        ('"shape":[2,2]', '"shape":[1' + "0" * 4000 + "]"),
        ('"output":[', '"output":' + "[" * 990 + "]" * 990 + ',"raised":['),
        ('"output":[', '"output":' + "[" * 200 + "7" + "]" * 200 + ',"raised":['),
        ('"level":"mix"', '"level":' + "[" * 900 + "]" * 900),
        ('"Max":', '"Max":' + '{"a":' * 400 + "0" + "}" * 400 + ',"x":'),
        ("Torch.log.0.forward", "Torch." + "l" * 100_000 + ".0.forward"),
        ('"requires_grad":false', '"requires_grad":"' + "f" * 100_000 + '"'),
    ],
    ids=lambda text: text[:30],
)
def test_a_crafted_document_is_damaged(dump, old, new):
    edit(dump, "dump.json", old.encode(), new.encode())
    (verdict,) = verify(dump)
    assert verdict.state == "damaged"
    assert all(len(problem) <= 1000 for problem in verdict.problems)
    assert main.main(["verify", str(dump)]) == 4
    assert main.main(["show", str(dump)]) in (0, 1)
