"""The tensor leaf: every number is the one of now, what is put off is the same, files hold what was there."""

from __future__ import annotations

import errno
import gc
import math
import os
import re
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probe_format.jsonio import loads
from probe_format.tensors import sketch_of
from probe_format.write.coverage import Coverage
from probe_torch.tensors.leaf import Placement, TensorLeaf, TensorOptions
from probe_torch.tensors.sums import GradientSum
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Json = dict[str, Any]


class Rig:
    """A leaf, the events it writes, and calls that use it as the collector does."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.events: list[Any] = []
        self.coverage = Coverage()
        self.leaf = TensorLeaf(TensorOptions(folder, **options), self.coverage, self.events.append)
        self.count = 0

    def placement(self, file: bool = False) -> Placement:
        self.count += 1
        return Placement(f"Torch.a.{self.count}.forward", "input", file, label="input_args")

    def describe(self, t: Any, file: bool = False) -> bytes:
        """The tensor object, as it goes into an event."""
        return described(self.leaf, self.placement(file), t)

    def see(self, t: Any, file: bool = False) -> Json:
        """The tensor object, once everything is written."""
        found = self.describe(t, file)
        if HOLE.search(found):
            self.leaf.flush()
        return self.filled(found)

    @property
    def fillers(self) -> dict[int, bytes]:
        return {
            number: filler
            for event in self.events
            if event[0]["k"] == "fill"
            for number, filler in zip(event[0]["h"], event[1], strict=True)
        }

    def filled(self, value: bytes) -> Json:
        """A value with its holes filled; all of them must have been, once."""
        fillers = self.fillers
        assert len(fillers) == sum(len(event[1]) for event in self.events)
        while HOLE.search(value):
            value = HOLE.sub(lambda found: fillers[int(found[1])], value)
        found: Json = loads(value)
        return found


HOLE = re.compile(rb"\x1a[ncf](\d+)\x1a")


def described(leaf: TensorLeaf, placement: Placement, t: Any) -> bytes:
    with leaf.aside():
        return leaf.tensor(placement, t, (0,))


def seen(leaf: TensorLeaf, placement: Placement, t: Tensor) -> Json:
    """The tensor object of one whose numbers are there at once."""
    found: Json = loads(described(leaf, placement, t))
    return found


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def fresh(t: Tensor, folder: Path, **options: Any) -> Json:
    """What a leaf says that has never seen anything."""
    return Rig(folder, share=False, **options).see(t)


# -- the numbers are those of now -------------------------------------------------------------------------


def test_whether_it_needs_a_gradient_is_asked_each_time(rig: Rig) -> None:
    x = torch.ones(2)
    assert rig.see(x)["requires_grad"] is False
    assert rig.see(x.requires_grad_())["requires_grad"] is True


def test_nothing_is_kept_alive_by_having_been_seen(rig: Rig) -> None:
    import weakref

    x = torch.ones(3, requires_grad=True)
    alive = weakref.ref(x)
    rig.see(x)
    del x
    gc.collect()
    assert alive() is None


def op(name: str) -> Callable[[list[Tensor], int, int], None]:
    @torch.no_grad()
    def change(pool: list[Tensor], i: int, j: int) -> None:
        x, y = pool[i % len(pool)], pool[j % len(pool)]
        if name == "write":
            x.add_(1.5)
        elif name == "write part" and x.numel():
            x.view(-1)[0] = float(j)
        elif name == "view":
            pool.append(x.view(-1)[j % (x.numel() + 1) :])
        elif name == "copy":
            pool.append((x * 2).requires_grad_(j % 2 == 1))
        elif name == "drop" and len(pool) > 1:
            del pool[i % len(pool)]
        elif name == "data":
            x.data.mul_(0.5)
        elif name == "swap":
            x.data = y.data.clone()
        elif name == "numpy" and x.numel():
            x.detach().numpy().reshape(-1)[0] = -float(j)

    return change


OPS = ["write", "write part", "view", "copy", "drop", "data", "swap", "numpy", "nothing"]


@given(st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_whatever_happens_in_between_the_numbers_are_those_of_now(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    rig = Rig(folder)
    pool = [torch.arange(4.0, requires_grad=True), torch.ones(2)]
    for name, i, j in steps:
        op(name)(pool, i, j)
        for x in pool:
            assert rig.see(x) == fresh(x, folder), name


def test_many_threads_may_look(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    shared = [torch.full((10,), float(i), requires_grad=True) for i in range(20)]
    wrong: list[Any] = []

    def run(n: int) -> None:
        for i in range(400):
            t = shared[i % 20]
            if seen(rig.leaf, Placement("r", "input", False), t)["Max"] != i % 20:
                wrong.append(i)
            own = torch.full((3,), float(n * 1000 + i))
            if seen(rig.leaf, Placement("r", "input", False), own)["Min"] != n * 1000 + i:
                wrong.append(i)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(6)))
    assert wrong == []
    assert rig.leaf.tally == {"tensors": 6 * 800}


# -- the object -------------------------------------------------------------------------------------------


def test_the_keys_are_in_the_order_of_msprobe(tmp_path: Path) -> None:
    rig = Rig(tmp_path, checksum="md5", zero_count=True)
    x = torch.tensor([0.0, math.nan])
    found = rig.see(x, file=True)
    numbers = ("Max", "Min", "Mean", "Norm")
    assert list(found)[:11] == [
        *("type", "dtype", "shape", *numbers, "requires_grad", "data_name", "data_crc32", "zero_count")
    ]
    assert found["data_crc32"] == f"{zlib.crc32((rig.folder / found['data_name']).read_bytes()):08x}"
    assert found["md5"] == f"{zlib.crc32(x.numpy().tobytes()):08x}"
    assert (found["zero_count"], found["nan_count"], found["Max"]) == (1, 1, "NaN")
    assert rig.see(x, file=True) == {**found, "data_name": found["data_name"].replace(".1.", ".2.")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_sketch_is_of_the_elements_in_c_order(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.randn(6, 7, 5).to(dtype)
    wanted = sketch_of(x.double().numpy().ravel())
    rig, images = Rig(tmp_path, sketch=True), torch.channels_last
    for other in (x, x.mT.contiguous().mT, x.expand(2, 6, 7, 5)[1], x[None].to(memory_format=images)[0]):
        assert rig.see(other)["sketch"] == wanted
    deferred = Rig(tmp_path / "later", sketch=True, deferred=True)
    assert deferred.see(x)["sketch"] == wanted
    assert "sketch" not in rig.see(torch.arange(3)) and "sketch" not in Rig(tmp_path / "without").see(x)
    assert "sketch" not in rig.see(x * math.inf)


def test_xor_is_without_statistics(tmp_path: Path) -> None:
    found = Rig(tmp_path, checksum="xor", statistics=False).see(torch.tensor([7], dtype=torch.int64))
    assert found == {
        "type": "torch.Tensor",
        "dtype": "torch.int64",
        "shape": [1],
        "requires_grad": False,
        "md5": "0x0000000000000007",
    }


def test_checksums_are_of_the_elements_in_order(tmp_path: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[:, ::2], x[1:].bfloat16(), x[:0], x[0, 0]):
        raw = view.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if view.numel() else b""
        assert fresh(view, tmp_path, checksum="md5")["md5"] == f"{zlib.crc32(raw):08x}"


def test_what_has_no_numbers_is_counted_and_says_why(rig: Rig, tmp_path: Path) -> None:
    found = rig.see(torch.empty(2, device="meta"), file=True)
    assert (found["Max"], found["unsupported"]) == (None, "a meta tensor has no data")
    assert "data_name" not in found
    odd = rig.see(torch.zeros(2, dtype=torch.bits8), file=True)
    assert odd["unsupported"] == "no statistics for dtype torch.bits8"
    assert (tmp_path / odd["data_name"]).is_file()
    assert sum(rig.coverage.json()["counts"]["unsupported"].values()) == 2


def test_numpy_arrays(rig: Rig, tmp_path: Path) -> None:
    a = np.arange(6, dtype="int16").reshape(2, 3)
    found = loads(rig.leaf.leaf(rig.placement(True), a, (1,)))
    assert (found["type"], found["dtype"], found["shape"], found["Max"]) == (
        "numpy.ndarray",
        "int16",
        [2, 3],
        5,
    )
    assert "requires_grad" not in found
    assert np.array_equal(np.load(tmp_path / found["data_name"]), a)
    scalar = loads(rig.leaf.leaf(rig.placement(True), np.array(2.5), (0,)))
    assert scalar["shape"] == []
    assert np.load(tmp_path / scalar["data_name"]).shape == ()
    for odd in (np.array(["a"]), np.array([None]), np.array([1], "M8[s]"), np.zeros(1, "i4,f4")):
        told = loads(rig.leaf.leaf(rig.placement(True), odd, (0,)))
        assert told["Max"] is None
        assert told["unsupported"].startswith("no statistics for numpy dtype")
        assert ("data_name" in told) == (not odd.dtype.hasobject)
    empty = loads(rig.leaf.leaf(rig.placement(True), np.empty((0, 2)), (0,)))
    assert (empty["Max"], "data_name" in empty, "unsupported" in empty) == (None, False, False)


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("deferred", [False, True])
def test_the_users_modes_do_not_see_us(tmp_path: Path, deferred: bool) -> None:
    rig = Rig(tmp_path, deferred=deferred, checksum="md5")
    x = torch.randn(3, 4, dtype=torch.float16)[:, ::2]
    with Counting() as mode:
        rig.see(x, file=True)
        rig.see(x.conj(), file=True)
    assert [str(f) for f in mode.calls if "conj" not in str(f)] == []
    rig.leaf.close()


def test_the_largest_norms_are_those_of_all_tensors(rig: Rig) -> None:
    for i in range(1, 9):
        rig.see(torch.tensor([float(i)]))
    rig.see(torch.tensor([math.inf]))
    found = rig.leaf.summary.json()
    assert found["norms"][0] == ["Torch.a.8.forward.input_args.0", 8.0]
    assert [norm for _, norm in found["norms"]] == [8.0, 7.0, 6.0, 5.0, 4.0]
    assert found["first_non_finite"]["record"] == "Torch.a.9.forward"


# -- files ------------------------------------------------------------------------------------------------


def loaded(rig: Rig, found: Json) -> Tensor:
    t: Tensor = torch.load(rig.folder / found["data_name"], weights_only=True)
    return t


def some_tensors() -> dict[str, Tensor]:
    base = torch.arange(24.0).reshape(2, 3, 4)
    return {
        "contiguous": base,
        "transposed": base.transpose(0, 2),
        "slice": base[:, 1:, ::2],
        "expanded": base[:, :1].expand(2, 3, 4),
        "0-d": base[1, 2, 3],
        "bool": base > 3,
        "bfloat16": base.bfloat16(),
        "float8": base.to(torch.float8_e4m3fn),
        "uint64": base.to(torch.uint64),
        "complex": torch.complex(base, -base),
        "conjugate": torch.complex(base, base + 1).conj(),
        "negative": torch.complex(base, base + 1).conj().imag,
        "parameter": torch.nn.Parameter(base.clone()),
        "large conjugate": torch.complex(torch.randn(4096), torch.randn(4096)).conj(),
    }


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("kind", some_tensors())
def test_a_file_holds_the_tensor(tmp_path: Path, kind: str, deferred: bool) -> None:
    rig = Rig(tmp_path, deferred=deferred)
    t = some_tensors()[kind]
    found = rig.see(t, file=True)
    rig.leaf.close()
    back = loaded(rig, found)
    right = t.detach().resolve_conj().resolve_neg()
    assert (back.dtype, back.shape, back.is_contiguous()) == (t.dtype, t.shape, True)
    assert torch.equal(
        back.view(torch.uint8) if "float8" in kind else back,
        right.view(torch.uint8) if "float8" in kind else right,
    )
    assert back.untyped_storage().nbytes() == t.numel() * t.element_size()  # not the whole storage of a slice


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("deferred", [False, True])
def test_dtypes_that_torch_saves_in_no_other_way_are_bytes(tmp_path: Path, deferred: bool) -> None:
    rig = Rig(tmp_path, deferred=deferred)
    half = torch.tensor([1 + 2j, 3 - 4j]).to(torch.complex32)
    found = [
        rig.see(t, file=True)
        for t in (half, half[1], torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8))
    ]
    rig.leaf.close()
    assert loaded(rig, found[0]).view(torch.complex32).tolist() == half.tolist()
    assert loaded(rig, found[1]).view(torch.complex32).tolist() == [half[1].item()]
    assert loaded(rig, found[2]).tolist() == [3, 3, 3]


def test_empty_tensors_have_no_file(rig: Rig) -> None:
    assert "data_name" not in rig.see(torch.empty(0, 3), file=True)
    assert list(rig.folder.iterdir()) == []


@pytest.mark.parametrize("deferred", [False, True])
def test_the_same_bytes_are_written_once(tmp_path: Path, deferred: bool) -> None:
    for share in (True, False):
        folder = tmp_path / str(share)
        folder.mkdir()
        rig = Rig(folder, deferred=deferred, share=share)
        x = torch.ones(5, requires_grad=True)
        a, b = rig.see(x, file=True), rig.see(x.detach().clone(), file=True)
        with torch.no_grad():
            x.mul_(2)
        c = rig.see(x, file=True)
        rig.leaf.close()
        inodes = [(folder / found["data_name"]).stat().st_ino for found in (a, b, c)]
        assert len(set(inodes)) == (2 if share else 3)
        assert (inodes[0] == inodes[1]) == share
        assert [loaded(rig, found)[0] for found in (a, b, c)] == [1, 1, 2]


def test_a_file_first_wanted_later_holds_what_is_there_then(rig: Rig) -> None:
    x = torch.ones(2)
    rig.see(x)
    x.add_(1)
    assert loaded(rig, rig.see(x, file=True)).tolist() == [2, 2]
    rig.see(x)
    assert loaded(rig, rig.see(x, file=True)).tolist() == [2, 2]


# -- put off ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("kind", some_tensors())
@pytest.mark.parametrize("zero_count", [False, True])
def test_what_is_put_off_is_what_would_have_been_said_at_once(
    tmp_path: Path, kind: str, zero_count: bool
) -> None:
    rig = Rig(tmp_path, deferred=True, zero_count=zero_count)
    t = some_tensors()[kind]
    found = rig.see(t, file=True)
    right = fresh(t, tmp_path, zero_count=zero_count)
    name = found.pop("data_name")
    assert name == "Torch.a.1.forward.input.0.pt"
    assert found.pop("data_crc32") == f"{zlib.crc32((rig.folder / name).read_bytes()):08x}"
    assert set(found) == set(right)
    for key, value in right.items():
        if key in ("Mean", "Norm"):
            assert found[key] == pytest.approx(value, rel=1e-6)
        elif t.is_complex() and isinstance(value, float):  # two roots, each rounded in its way
            assert found[key] == pytest.approx(value, rel=1e-15)
        else:
            assert found[key] == value, key
    rig.leaf.close()


@pytest.mark.parametrize("zero_count", [False, True])
@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, math.nan], [math.inf, 0.0], [1e-200, 0.0]])
def test_changing_the_tensor_meanwhile_changes_neither_numbers_nor_file(
    tmp_path: Path, values: list[float], zero_count: bool
) -> None:
    rig = Rig(tmp_path, deferred=True, zero_count=zero_count)
    x = torch.tensor(values, dtype=torch.float64)
    right = fresh(x, tmp_path, zero_count=zero_count)
    found = [rig.describe(x, file=True)]
    with memoryview(np.asarray(x)) as memory:  # past the version counter
        memory[0] = 50.0
    found.append(rig.describe(x, file=True))
    x.fill_(99.0)
    rig.leaf.flush()
    first, second = map(rig.filled, found)
    assert {key: value for key, value in first.items() if not key.startswith("data_")} == right
    assert second["Max"] == 50.0 or values[1] != values[1]
    assert torch.equal(
        loaded(rig, first).nan_to_num(), torch.tensor(values, dtype=torch.float64).nan_to_num()
    )
    assert loaded(rig, second)[0] == 50.0
    rig.leaf.close()


def test_settling_waits_until_there_are_enough(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deferred=True, bound=100)
    rig.describe(torch.ones(5))
    rig.leaf.flush_numbers()
    assert not rig.events
    rig.describe(torch.ones(50))
    rig.leaf.flush_numbers()
    ((head, fillers),) = rig.events
    assert (head["k"], len(fillers)) == ("fill", 2)
    rig.leaf.flush_numbers(force=True)
    assert len(rig.events) == 1


def test_a_late_tensor_is_finished_json_with_holes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deferred=True)
    found = rig.describe(torch.ones(2, requires_grad=True), file=True)
    rig.leaf.close()
    assert found == (
        b'{"type":"torch.Tensor","dtype":"torch.float32","shape":[2]\x1an1\x1a,"requires_grad":true\x1af2\x1a}'
    )
    assert loads(HOLE.sub(b"", found))["shape"] == [2]
    fillers = rig.fillers
    assert fillers[1] == b',"Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.4142135623730951'
    crc = zlib.crc32((rig.folder / "Torch.a.1.forward.input.0.pt").read_bytes())
    assert fillers[2] == b',"data_name":"Torch.a.1.forward.input.0.pt","data_crc32":"%08x"' % crc
    assert rig.leaf.summary.json()["norms"] == [["Torch.a.1.forward.input_args.0", math.sqrt(2)]]


def test_the_first_that_is_not_finite_is_the_first_also_where_its_numbers_come_late(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deferred=True)
    rig.describe(torch.ones(1))
    rig.describe(torch.tensor([math.nan]))
    rig.leaf.leaf(rig.placement(), np.array([math.inf]), (0,))  # told at once
    rig.describe(torch.tensor([-math.inf]))
    rig.leaf.close()
    assert rig.leaf.summary.json()["first_non_finite"] == {
        "record": "Torch.a.2.forward",
        "slot": "input_args.0",
        "why": "1 NaN",
    }


@pytest.mark.parametrize("deferred", [False, True])
def test_a_file_that_cannot_be_written_is_told(tmp_path: Path, deferred: bool) -> None:
    rig = Rig(tmp_path / "none", deferred=deferred)
    found = rig.see(torch.ones(2), file=True)
    assert "data_name" not in found
    assert found["lost"] == "tensor file: [Errno 2] No such file or directory"
    assert found["Max"] == 1.0
    faults = [head for head, _ in rig.events if head["k"] == "fault"]
    assert [e["w"] for e in faults] == ["writing Torch.a.1.forward.input.0.pt"]
    assert rig.coverage.json()["counts"]["failed"] == {"tensor files": 1}
    rig.leaf.close()


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_raised(rig: Rig, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(number, "full")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="full"):
        rig.see(torch.ones(2), file=True)


# -- a collective that still writes -----------------------------------------------------------------------


class Late:
    """Two tensors that a functional collective writes."""

    def __init__(self, rig: Rig) -> None:
        self.tensors = torch.zeros(3), torch.zeros(3)
        for t in self.tensors:
            rig.leaf.inflight.issued(t)
        self.rig = rig

    def wait(self) -> None:
        for t in self.tensors:
            t.fill_(2.0)
            self.rig.leaf.inflight.was_waited(t)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_what_a_collective_writes_is_described_once_it_was_waited_for(
    tmp_path: Path, added: bool, deferred: bool
) -> None:
    rig = Rig(tmp_path, checksum="md5", deferred=deferred)
    late = Late(rig)
    given = GradientSum(late.tensors) if added else late.tensors[0]
    value = rig.describe(given, file=True)
    assert b"\x1an1\x1a" in value
    assert b"\x1af2\x1a" in value
    late.wait()
    late.tensors[0].fill_(7.0)
    rig.leaf.close()
    found = rig.filled(value)
    assert found["Max"] == found["Min"] == (4.0 if added else 2.0)
    assert loaded(rig, found).tolist() == [found["Max"]] * 3
    assert found["md5"] == f"{zlib.crc32(np.full(3, found['Max'], np.float32).tobytes()):08x}"
    assert rig.leaf.summary.json()["norms"][0][0] == "Torch.a.1.forward.input_args.0"


def test_without_statistics_its_content_comes_late(tmp_path: Path) -> None:
    rig = Rig(tmp_path, checksum="xor", statistics=False)
    late = Late(rig)
    value = rig.describe(late.tensors[0])
    assert b"\x1ac1\x1a" in value
    late.wait()
    assert set(rig.filled(value)) == {"type", "dtype", "shape", "md5", "requires_grad"}


@pytest.mark.parametrize("statistics", [False, True])
def test_what_was_never_waited_for_says_so(tmp_path: Path, statistics: bool) -> None:
    rig = Rig(tmp_path, statistics=statistics, checksum="md5")
    late = Late(rig)
    value = rig.describe(GradientSum(late.tensors), file=True)
    rig.leaf.flush()
    found = rig.filled(value)
    assert found["unsupported"] == "a collective was still writing it, and was not waited for"
    assert ("Max" in found) == statistics
    assert not {"md5", "data_name", "lost"} & set(found)
    assert sum(rig.coverage.json()["counts"]["unsupported"].values()) == 1


def test_closing_twice_is_once(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    rig = Rig(tmp_path, deferred=True)
    rig.see(torch.ones(2), file=True)
    assert set(threading.enumerate()) != before
    rig.leaf.close()
    rig.leaf.close()
    assert set(threading.enumerate()) <= before
