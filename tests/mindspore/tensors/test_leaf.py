"""A tensor as JSON, its numbers and its file: the leaf, alone."""

import json
import re
import zlib
from itertools import pairwise
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, ops
from mindspore.common.initializer import Normal
from probe_format import jsonio
from probe_format.tensors import sketch_of
from probe_format.tensors.narrow_floats import bits_of, narrow_name
from probe_format.values import UNKNOWN
from probe_format.write.coverage import Coverage
from probe_mindspore.tensors.leaf import Placement, TensorLeaf, TensorOptions
from probe_runtime.collect import Part, Walk


class Bench:
    """A leaf that writes to a folder, and what it said."""

    def __init__(self, folder: Path, **options) -> None:
        self.coverage = Coverage()
        self.events: list[dict] = []
        self.folder = folder
        requires_grad = options.pop("requires_grad", False)
        self.leaf = TensorLeaf(
            TensorOptions(folder, **options), self.coverage, self.events.append, requires_grad=requires_grad
        )

    def __call__(self, value, *path, file=False):
        body = self.leaf.leaf(Placement("r", "input", file, label="input_args"), value, path or (0,))
        assert type(body) is bytes
        found = jsonio.loads(HOLE.sub(b"", body))
        json.dumps(found, allow_nan=False)
        return found


HOLE = re.compile(rb"\x1af(\d+)\x1a")


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_the_keys_come_in_msprobes_order(tmp_path):
    body = Bench(tmp_path, checksum="md5", zero_count=True)(Tensor(np.float32([1, -3, 0])), file=True)
    assert list(body) == [
        "type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "data_name", "data_crc32", "md5", "zero_count",
    ]  # fmt: skip
    assert body["type"] == "mindspore.Tensor" and body["dtype"] == "Float32" and body["shape"] == [3]
    assert (body["Max"], body["Min"], body["zero_count"]) == (1.0, -3.0, 1)
    assert body["Mean"] == pytest.approx(-2 / 3) and body["Norm"] == pytest.approx(10**0.5)
    assert body["data_name"] == "r.input.0.npy"
    assert body["md5"] == f"{zlib.crc32(np.float32([1, -3, 0]).tobytes()):08x}"


@pytest.mark.parametrize("dtype", [ms.float32, ms.float64, ms.bfloat16, ms.float16], ids=str)
def test_a_sketch_is_of_the_elements_in_c_order(tmp_path, dtype):
    x = Tensor(np.random.default_rng(0).normal(size=(6, 7, 5)).astype(np.float32)).astype(dtype)
    wanted = sketch_of(x.astype(ms.float64).asnumpy().ravel())
    see = Bench(tmp_path, sketch=True)
    assert see(x)["sketch"] == see(x.swapaxes(1, 2).swapaxes(1, 2))["sketch"] == wanted
    assert "sketch" not in see(Tensor([1, 2])) and "sketch" not in Bench(tmp_path)(x)


VALUES = [0.5, -2.0, 1.5, 0.0]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (ms.float16, "Float16"), (ms.float32, "Float32"), (ms.float64, "Float64"), (ms.bfloat16, "BFloat16"),
        (ms.float8_e4m3fn, "Float8E4M3FN"), (ms.float8_e5m2, "Float8E5M2"), (ms.hifloat8, "HiFloat8"),
    ],
)  # fmt: skip
def test_floats_of_every_width(bench, dtype, name):
    t = Tensor(np.array(VALUES), dtype=dtype)
    body = bench(t, file=True)
    assert body["dtype"] == name == str(t.dtype)
    assert [body[k] for k in ("Max", "Min", "Mean")] == [1.5, -2.0, 0.0]
    assert body["Norm"] == pytest.approx(6.5**0.5, rel=1e-6)
    stored = np.load(bench.folder / body["data_name"])
    np.testing.assert_array_equal(stored.astype(float), VALUES)
    narrow = narrow_name(name)
    if narrow:
        assert stored.dtype == np.float32
        assert bits_of(stored, narrow).tobytes() == t.get_bytes()


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_are_exact(bench, kind):
    top = np.iinfo(kind).max
    body = bench(Tensor(np.array([top, 0, 1], kind)), file=True)
    assert (body["Max"], body["Min"]) == (int(top), 0)
    assert np.load(bench.folder / body["data_name"]).dtype == np.dtype(kind)


def test_bool_complex_and_int4(bench):
    body = bench(Tensor([True, False]))
    assert body["Max"] is True and body["Min"] is False and body["Mean"] == 0.5
    body = bench(Tensor(np.array([3 + 4j, 0], np.complex64)))
    assert (body["dtype"], body["Max"], body["Min"], body["Norm"]) == ("Complex64", 5.0, 0.0, 5.0)
    assert bench(Tensor(np.int8([1, -2]), dtype=ms.qint4x2))["Min"] == -2


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [ms.float16, ms.float32, ms.float64, ms.bfloat16, ms.float8_e5m2])
def test_nan_is_found_wherever_it_stands(bench, dtype, at):
    values = np.array([1.0, -1.0, 2.0, 0.5])
    values[at] = np.nan
    body = bench(Tensor(values, dtype=dtype))
    assert [body[k] for k in ("Max", "Min", "Mean", "Norm")] == ["NaN"] * 4
    assert (body["nan_count"], body["posinf_count"]) == (1, 0)
    assert bench.leaf.summary.first is not None


def test_no_false_infinity(bench):
    assert bench(Tensor(np.full(4096, 6e4), dtype=ms.float16))["Norm"] == pytest.approx(6e4 * 64)
    assert bench(Tensor(np.full(16, 3e38), dtype=ms.bfloat16))["Norm"] == pytest.approx(4 * 3e38, rel=1e-2)
    body = bench(Tensor(np.float32([np.inf, 1])))
    assert (body["Max"], body["Min"], body["finite_max"], body["posinf_count"]) == ("inf", 1.0, 1.0, 1)


def test_no_dimension_and_no_element(bench):
    body = bench(Tensor(-3.0, ms.float32), file=True)
    assert body["shape"] == [] and body["Norm"] == 3.0 and body["Max"] == -3.0
    assert np.load(bench.folder / body["data_name"]).shape == ()
    for dtype in (ms.float32, ms.bfloat16, ms.float8_e4m3fn, ms.bool_):
        body = bench(Tensor(np.zeros((0, 3)), dtype=dtype), file=True)
        assert body["shape"] == [0, 3] and body["Max"] is None and "data_name" not in body


@pytest.mark.parametrize("dtype", [ms.float32, ms.bfloat16, ms.int32])
def test_views_are_read_as_the_run_sees_them(bench, dtype):
    base = ops.cast(Tensor(np.arange(24, dtype=np.float32).reshape(4, 6)), dtype)
    expected = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view, want in ((base.T, expected.T), (base[1:3], expected[1:3]), (base[:, ::2], expected[:, ::2])):
        body = bench(view, "v", str(want.shape), file=True)
        np.testing.assert_array_equal(np.load(bench.folder / body["data_name"]).astype(np.float32), want)
        assert body["Max"] == want.max()


def test_a_large_tensor_is_read_in_pieces(bench):
    values = np.random.default_rng(0).normal(size=300_001).astype(np.float32)
    for dtype in (ms.float16, ms.bfloat16):
        t = Tensor(values, dtype=dtype)
        body = bench(t)
        wide = ops.cast(t, ms.float32).asnumpy().astype(np.float64)
        assert (body["Max"], body["Min"]) == (wide.max(), wide.min())
        assert body["Mean"] == pytest.approx(wide.mean(), rel=1e-4)
        assert body["Norm"] == pytest.approx(np.linalg.norm(wide), rel=1e-5)


def _ways_to_write():
    p = Parameter(Tensor(np.ones((2, 2), np.float32)), name="p")
    one = (Tensor(np.ones((2, 2), np.float32)),)
    yield "x[i]", p, lambda: p.__setitem__((0, 0), 7.0)
    yield "assign", p, lambda: ops.assign(p, p * 2)
    yield "optimizer", p, lambda: ms.nn.Momentum([p], 0.1, 0.9)(one)
    yield "set_data", p, lambda: p.set_data(Tensor(np.full((2, 2), 9.0, np.float32)))
    yield "copy_", p, lambda: p.copy_(Tensor(np.full((2, 2), 4.0, np.float32)))
    yield "numpy", p, lambda: p.asnumpy().__setitem__(0, 5.0)


def test_a_changed_tensor_is_never_described_by_old_numbers(tmp_path):
    """MindSpore's version counter stands still at most of these."""
    for name, p, write in _ways_to_write():
        bench = Bench(tmp_path)
        before = bench(p, name, "before", file=True)
        again = bench(p, name, "again", file=True)
        write()
        after = bench(p, name, "after", file=True)
        files = [tmp_path / b["data_name"] for b in (before, again, after)]
        assert files[0].samefile(files[1]) and not files[0].samefile(files[2]), name
        np.testing.assert_array_equal(np.load(files[2]), p.asnumpy())
        assert after["Max"] == p.asnumpy().max() and {**before, "data_name": 0} == {**again, "data_name": 0}


def test_a_name_written_twice_is_not_linked_by_its_old_bytes(tmp_path):
    bench = Bench(tmp_path)
    a, b = Tensor(np.float32([1, 2])), Tensor(np.float32([3, 4]))
    bench(a, "x", file=True)
    bench(b, "x", file=True)
    body = bench(a, "y", file=True)
    np.testing.assert_array_equal(np.load(tmp_path / body["data_name"]), [1, 2])


@pytest.mark.parametrize("statistics", [True, False])
def test_without_sharing_every_file_is_its_own(tmp_path, statistics):
    t = Tensor(np.float32([1, 2]))
    for share in (True, False):
        bench = Bench(tmp_path, share=share, statistics=statistics)
        one, two = (tmp_path / bench(t, str(share), i, file=True)["data_name"] for i in range(2))
        assert one.samefile(two) is share


def test_looking_leaves_no_mark():
    """Reading neither copies into the tensor, nor detaches it from its memory, nor makes it contiguous."""
    base = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)) + 0
    view = base.T
    version = getattr(base, "_version", None)
    leaf = Bench(Path("/nowhere")).leaf
    for t in (base, view):
        leaf.leaf(Placement("r", "input", False), t, (0,))
    assert not view.is_contiguous() and getattr(base, "_version", None) == version
    base[0, 1] = 50.0
    assert float(view[1, 0]) == 50.0


_SHAPES = ((), (1,), (3, 5), (300,), (2, 0), (400, 400))


@pytest.mark.parametrize("dtype", [ms.float32, ms.float64, ms.float16, ms.bfloat16, ms.int32, ms.bool_])
def test_the_short_way_tells_what_the_general_way_tells(tmp_path, dtype):
    """What is finished JSON for the usual tensor is the same object that is built key by key for all others."""
    short, general = (
        Bench(tmp_path / name, requires_grad=name == "general") for name in ("short", "general")
    )
    for folder in (short.folder, general.folder):
        folder.mkdir()
    rng = np.random.default_rng(0)
    for at, shape in enumerate(_SHAPES):
        whole = Tensor(np.array(rng.normal(size=shape), np.float32), dtype=dtype)
        zeros = Tensor(np.zeros(shape, np.float32), dtype=dtype)
        views = (whole.T, whole[:, ::2]) if len(shape) == 2 and all(shape) else ()
        for number, t in enumerate((whole, zeros, Parameter(whole, name="p"), *views)):
            for file in (False, True):
                told = short(t, at, number, int(file), file=file)
                expected = general(t, at, number, int(file), file=file)
                expected.pop("requires_grad")
                assert list(told) == list(expected) and told == expected, (shape, number, file)
                assert all(type(told[key]) is type(expected[key]) for key in told)
                if "data_name" in told:
                    one, two = ((b.folder / told["data_name"]).read_bytes() for b in (short, general))
                    assert one == two
    assert short.leaf.summary.json() == general.leaf.summary.json()


def test_what_is_not_initialised_stays_so(bench):
    t = Tensor(shape=(2, 2), dtype=ms.float32, init=Normal())
    body = bench(t, file=True)
    assert t.has_init and "not initialised" in body["unsupported"] and body["Max"] is None
    assert "data_name" not in body and bench.coverage.counts["unsupported"]


def test_a_failed_computation_is_told_not_raised(bench):
    broken = ms.mint.norm(Tensor(np.float32([1, 2])))
    body = bench(broken)
    assert body["dtype"] == "unknown" and "LinalgVectorNorm unregistered" in body["unsupported"]
    assert body["Max"] is None
    with pytest.raises(RuntimeError, match="unregistered"):  # still the run's own error
        broken.asnumpy()


def test_sparse_tensors_tell_their_stored_values(bench):
    coo = ms.COOTensor(Tensor([[0, 1], [1, 2]], ms.int32), Tensor([1.0, -2.0]), (3, 4))
    csr = ms.CSRTensor(Tensor([0, 1, 2], ms.int32), Tensor([0, 1], ms.int32), Tensor([1.0, -2.0]), (2, 4))
    row = ms.RowTensor(Tensor([0, 2], ms.int32), Tensor(np.ones((2, 3), np.float32)), (4, 3))
    for t, shape, layout, stored in (
        (coo, [3, 4], "COO", 2),
        (csr, [2, 4], "CSR", 2),
        (row, [4, 3], "Row", 6),
    ):
        body = bench(t, file=True)
        assert (body["shape"], body["layout"], body["stored"]) == (shape, layout, stored)
        assert body["type"] == f"mindspore.{layout}Tensor" and body["Max"] == 1.0
        assert np.load(bench.folder / body["data_name"]).size == stored


def test_layout_of_a_distributed_tensor(bench):
    class Layout:
        device_matrix = (2, 2)
        alias_name = ("dp", "mp")
        tensor_map = (1, 0)
        rank_list = (0, 1, 2, 3)

    p = Parameter(Tensor(np.ones(2, np.float32)), name="p")
    p.layout = Layout()
    p.hsdp_effective_shard_size = 2
    body = bench(p)
    assert body["layout"] == {
        "Device Matrix": [2, 2], "Alias Name": ["dp", "mp"], "Tensor Map": [1, 0], "Rank List": [0, 1, 2, 3],
        "Interleaved": "No",
    }  # fmt: skip
    assert body["hsdp_shard_size"] == 2


def test_requires_grad_only_for_mindtorch(tmp_path):
    p = Parameter(Tensor(np.ones(2, np.float32)), name="p", requires_grad=False)
    assert "requires_grad" not in Bench(tmp_path)(p)
    body = Bench(tmp_path, requires_grad=True)(p)
    assert body["requires_grad"] is False and list(body).index("requires_grad") == 7


def test_files_behind_the_run_hold_the_bytes_of_the_moment(tmp_path):
    bench = Bench(tmp_path, deferred=True)
    t = Tensor(np.zeros(1000, np.float32)) + 0
    for i in range(20):
        t[0] = float(i)
        bench(t, i, file=True)
    bench(Tensor(np.float32([1, 2])), "twin", 0, file=True)
    bench(Tensor(np.float32([1, 2])), "twin", 1, file=True)
    bench.leaf.close()
    for i in range(20):
        assert np.load(tmp_path / f"r.input.{i}.npy")[0] == i
    assert (tmp_path / "r.input.twin.0.npy").samefile(tmp_path / "r.input.twin.1.npy")
    told = [pair for head, fillers in bench.events for pair in zip(head["h"], fillers, strict=True)]
    crcs = [zlib.crc32((tmp_path / f"r.input.{i}.npy").read_bytes()) for i in range(2)]
    assert [filler for _, filler in told[:2]] == [
        b',"data_name":"r.input.%d.npy","data_crc32":"%08x"' % pair for pair in enumerate(crcs)
    ]
    assert len(told) == 22 and all(b > a for (a, _), (b, _) in pairwise(told))


def test_numpy_arrays_and_the_tensors_found(bench):
    body = bench(np.array([[1.5, 2.5]]), file=True)
    assert body["type"] == "numpy.ndarray" and body["dtype"] == "float64" and "data_name" in body
    part = Part(Walk(bench.leaf, lambda why: None), "r", "input", False, False, "input_args")
    a, b = Tensor([1.0]), Parameter(Tensor([2.0]), name="b")
    _, form = part.arguments(({"x": [a, (b, 3)], "n": np.ones(2)},))
    assert [(path, id(t)) for path, t in part.found] == [((0, "x", 0), id(a)), ((0, "x", 1, 0), id(b))]
    assert form == [{"x": [None, [None, None]], "n": None}]
    assert bench.leaf.leaf(part, object(), (0,)) is UNKNOWN
