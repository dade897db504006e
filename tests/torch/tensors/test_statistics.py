"""Numbers of torch tensors against the numpy reference: every dtype and layout, at once and put off."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dumping import capture
from hypothesis import given
from hypothesis import strategies as st
from probe_format.tensors.stats import NO_STATS, Stats, stats_of
from probe_torch.tensors.statistics import DeferredStats, cpu_stats, flat, raw_bytes
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
NARROW = [name for name in (*NARROW, "float8_e8m0fnu") if hasattr(torch, name)]
INTS = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
WIDE = ["float32", "float64", "complex32", "complex64", "complex128"]
DTYPES = [*NARROW, *INTS, *WIDE]
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def bits(dtype: str, n: int, seed: int = 0, finite: bool = False) -> Tensor:
    """n elements with any bits, so also NaN and infinities; or only small finite numbers."""
    kind = getattr(torch, dtype)
    g = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.randint(0, 2, (n,), generator=g).bool()
    if finite and (kind.is_floating_point or kind.is_complex):
        if kind.is_complex:
            return torch.randn(n, 2, generator=g).view(torch.complex64)[:, 0].to(kind)
        return torch.randn(n, generator=g).abs().add(0.1).to(kind)
    raw = torch.randint(0, 256, (n * kind.itemsize,), generator=g, dtype=torch.uint8)
    return raw.view(kind)


def values(t: Tensor) -> Any:
    """The elements as a numpy array that holds each exactly."""
    if t.dtype.is_complex:
        return t.to(torch.complex128).numpy()
    return t.to(torch.float64).numpy() if t.dtype.is_floating_point else t.numpy()


def near(found: Any, right: Any, precision: float, scale: float = 0.0) -> bool:
    if right is None or isinstance(right, bool) or not math.isfinite(right):
        return repr(found) == repr(right)
    return bool(abs(found - right) <= precision * max(abs(right), scale) + 1e-322)


def check(found: Stats | None, t: Tensor, precision: float = 1e-5) -> None:
    """The numbers are the reference's: extremes and counts exactly, Mean and Norm to some digits."""
    assert found is not None
    a = values(t)
    right = stats_of(a)
    digits = 1e-15 if t.dtype.is_complex else 0.0
    assert near(found.max, right.max, digits), (found, right)
    assert near(found.min, right.min, digits), (found, right)
    with np.errstate(all="ignore"):
        scale = float(np.abs(a.astype(np.complex128)).mean()) if a.size else 0.0
    assert near(found.mean, right.mean, precision, scale if math.isfinite(scale) else 0.0), (found, right)
    assert near(found.norm, right.norm, precision), (found, right)
    assert (found.nan, found.posinf, found.neginf) == (right.nan, right.posinf, right.neginf)
    assert near(found.finite_max, right.finite_max, digits)
    assert near(found.finite_min, right.finite_min, digits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("finite", [True, False])
def test_every_dtype(dtype: str, finite: bool) -> None:
    for n in (1, 2, 33, 400):
        t = bits(dtype, n, n, finite)
        check(cpu_stats(t), t)
        found = cpu_stats(t, zero_count=True)
        check(found, t)
        assert found is not None
        assert found.zeros == int((values(t) == 0).sum())


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_and_0_d(dtype: str) -> None:
    empty = bits(dtype, 6)[:0]
    assert cpu_stats(empty) == NO_STATS
    assert cpu_stats(empty.reshape(3, 0), zero_count=True) == Stats(zeros=0)
    one = bits(dtype, 3, finite=True)[1]
    assert one.dim() == 0
    check(cpu_stats(one), one)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2"])
def test_many_elements_on_many_threads(dtype: str) -> None:
    for n in (70_000, 1_100_000):
        for finite in (True, False):
            t = bits(dtype, n, n, finite)
            check(cpu_stats(t), t)
    tiny = torch.full((50,), 1e-30, dtype=torch.bfloat16)
    check(cpu_stats(tiny), tiny)


def test_no_false_infinity_in_half_precision() -> None:
    t = torch.full((2000,), 60_000.0, dtype=torch.float16)
    assert cpu_stats(t) == Stats(60_000.0, 60_000.0, 60_000.0, pytest.approx(60_000 * math.sqrt(2000)))
    ones = cpu_stats(torch.ones(100_000, dtype=torch.bfloat16))
    assert ones is not None
    assert ones.norm == pytest.approx(math.sqrt(100_000))


def layouts() -> dict[str, Tensor]:
    base = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5) - 31
    return {
        "contiguous": base,
        "transposed": base.transpose(1, 3),
        "permuted": base.permute(3, 0, 2, 1),
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "offset": base[1],
        "offset transposed": base[1].transpose(0, 2),
        "holes": base[:, :, ::2],
        "column": base[..., 3],
        "expanded": base[:, :, :1, :1].expand(2, 3, 4, 5),
        "expanded one": torch.tensor(3.0).expand(4, 5),
        "overlapping": torch.as_strided(base, (3, 4), (1, 1), 7),
        "equal strides": torch.as_strided(base, (2, 2), (2, 2)),
        "odd stride of one": torch.as_strided(base, (1, 6), (99, 1), 2),
        "0-d": base[1, 2, 3, 4],
    }


@pytest.mark.parametrize("kind", layouts())
def test_every_layout(kind: str) -> None:
    t = layouts()[kind]
    check(cpu_stats(t), t)
    assert sorted(flat(t).tolist()) == sorted(t.flatten().tolist())
    assert bytes(raw_bytes(t)) == t.contiguous().numpy().tobytes()
    half = t.to(torch.float16, memory_format=torch.preserve_format)
    check(cpu_stats(half), half)


@pytest.mark.parametrize(
    "kind", ["contiguous", "transposed", "permuted", "channels last", "offset transposed"]
)
def test_dense_tensors_are_read_in_place(kind: str) -> None:
    t = layouts()[kind]
    assert flat(t).data_ptr() == t.data_ptr()


@given(st.lists(st.integers(0, 3), max_size=4), st.data())
def test_any_view(shape: list[int], data: st.DataObject) -> None:
    t = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) - 3
    if t.dim():
        t = t.permute(data.draw(st.permutations(range(t.dim()))))
        t = t[tuple(slice(None, None, data.draw(st.integers(1, 2))) for _ in shape)]
        if data.draw(st.booleans()):
            t = t.unsqueeze(data.draw(st.integers(0, t.dim()))).expand([-1] * t.dim() + [-1])
    check(cpu_stats(t), t, 1e-13)
    assert sorted(flat(t).tolist()) == sorted(t.flatten().tolist())
    assert bytes(raw_bytes(t)) == t.contiguous().numpy().tobytes()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "complex32"])
def test_raw_bytes_of_every_dtype(dtype: str) -> None:
    for n in (0, 1, 9):
        t = bits(dtype, n)
        right = b"" if n == 0 else bytes(t.contiguous().view(torch.uint8).numpy())
        assert bytes(raw_bytes(t)) == right


def test_bytes_that_are_no_tensors_own_outlive_it() -> None:
    """A copy made on the way is gone when raw_bytes returns; its bytes must not be."""
    views = [raw_bytes(torch.full((500, 2), float(i))[:, 0].detach()) for i in range(50)]
    junk = [torch.full((500,), -1.0) for _ in range(50)]
    assert [np.frombuffer(v, np.float32)[-1] for v in views] == [float(i) for i in range(50)]
    del junk


def test_looking_leaves_no_mark() -> None:
    t = torch.randn(64)
    version, before = t._version, torch.random.get_rng_state()
    cpu_stats(t)
    raw_bytes(t)
    DeferredStats[None](False, 1 << 20).add(1, t, None)
    assert t._version == version
    assert t.grad_fn is None
    t.untyped_storage().resize_(1024)  # Tensor.numpy() would have forbidden that
    assert torch.random.get_rng_state().equal(before)


@pytest.mark.parametrize("name", ["bits8", "uint4", "float4_e2m1fn_x2", "quint8"])
def test_a_dtype_without_numbers_says_so(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    if name == "quint8":
        t = torch.quantize_per_tensor(torch.ones(4), 1.0, 0, dtype)
    else:
        t = torch.zeros(4, dtype=torch.uint8).view(dtype)
    assert cpu_stats(t) is None


# -- put off until one transfer ---------------------------------------------------------------------------


def put_off(*tensors: Tensor, zero_count: bool = False) -> list[Stats]:
    """The numbers of tensors that wait together; those that cannot wait are told at once."""
    waiting: DeferredStats[None] = DeferredStats(zero_count, 1 << 30)
    added = [waiting.add(i, t, None) for i, t in enumerate(tensors)]
    found = {number: stats for number, _, stats in waiting.fetch()}
    out = []
    for i, t in enumerate(tensors):
        direct = cpu_stats(t, zero_count=zero_count)
        assert direct is not None
        out.append(found[i] if added[i] else direct)
    assert not waiting.waiting
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("finite", [True, False])
def test_numbers_put_off_are_those_at_once(dtype: str, finite: bool) -> None:
    tensors = [bits(dtype, n, n, finite) for n in (1, 2, 33, 400)]
    tensors += [bits(dtype, 24, 5, finite).reshape(4, 6).t(), bits(dtype, 24, 6, finite)[::3]]
    for zero_count in (False, True):
        for t, found in zip(tensors, put_off(*tensors, zero_count=zero_count), strict=True):
            check(found, t)
            direct = cpu_stats(t, zero_count=zero_count)
            assert direct is not None
            assert found.zeros == direct.zeros
            assert type(found.max) is type(direct.max)


@pytest.mark.parametrize("big", [1e300, 1e-300, 1.7e308, 5e-324])
def test_extremes_put_off(big: float) -> None:
    t = torch.tensor([big, -big, big / 2], dtype=torch.float64)
    (found,) = put_off(t)
    check(found, t, 1e-13)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
def test_extreme_integers_put_off(dtype: str) -> None:
    info = torch.iinfo(getattr(torch, dtype))
    t = torch.tensor([info.max, info.min, info.max - 1], dtype=getattr(torch, dtype))
    (found,) = put_off(t)
    assert (found.max, found.min) == (info.max, info.min)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("zero_count", [False, True])
@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, math.nan], [1e-300, 0.0], [3, 0], [True, False]])
def test_a_tensor_changed_while_it_waits_keeps_its_numbers(
    values: list[float], zero_count: bool, inference: bool
) -> None:
    with torch.inference_mode(inference):
        t = torch.tensor(values, dtype=torch.float64 if type(values[0]) is float else None)
        right = cpu_stats(t.clone(), zero_count=zero_count)
        waiting: DeferredStats[str] = DeferredStats(zero_count, 1 << 30)
        assert waiting.add(7, t, "x")
        t.fill_(100)
        ((number, about, found),) = waiting.fetch()
    assert (number, about) == (7, "x")
    assert repr(found) == repr(right)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_a_tensor_of_floats_takes_four_operators(dtype: str) -> None:
    """Each is a launch on a device: the copy, the extremes, mean and norm. Views are none."""

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not op.is_view:
                called.append(op)
            return op(*args, **kwargs or {})

    called = list[Any]()
    waiting: DeferredStats[None] = DeferredStats(False, 1 << 30)
    tensors = [torch.randn(4, n).to(getattr(torch, dtype)) for n in range(1, 100)]
    with Counted():
        for n, t in enumerate(tensors):
            waiting.add(n, t, None)
    assert len(called) == 4 * len(tensors), called[:8]
    with Counted():
        called.clear()
        found = list(waiting.fetch())
    assert len(called) <= 4  # stacked and fetched by dtype, for all of them
    for (_, _, stats), t in zip(found, tensors, strict=True):
        check(stats, t)


def test_waiting_is_bounded() -> None:
    waiting = DeferredStats[None](False, 1000, most=5)
    assert not waiting.full
    waiting.add(1, torch.ones(100), None)
    assert not waiting.full
    waiting.add(2, torch.ones(200), None)
    assert waiting.full
    list(waiting.fetch())
    assert (waiting.full, waiting.held) == (False, 0)
    for i in range(5):
        assert not waiting.full
        waiting.add(i, torch.ones(1), None)
    assert waiting.full


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "bool", "complex64"])
def test_repeated_elements_are_read_once(dtype: str, deferred: bool) -> None:
    """An expanded tensor has memory for few of its elements: 10**12 of them cost nothing."""
    few = (torch.arange(-3.0, 9.0).reshape(4, 1, 3) / 4).to(getattr(torch, dtype))
    for base in (few, few.to(torch.float64).log().to(few.dtype) if few.is_floating_point() else few):
        small, large = base.expand(4, 7, 3), base.expand(4, 10**11, 3)
        true = stats_of_tensor(small.contiguous(), deferred)
        for t, times in ((small, 1), (large, 10**11 / 7)):
            found = stats_of_tensor(t, deferred)
            for key in ("max", "min", "finite_max", "finite_min"):
                assert repr(getattr(found, key)) == repr(getattr(true, key)), key
            assert found.mean == pytest.approx(true.mean, rel=1e-6, nan_ok=True)
            assert found.norm == pytest.approx(true.norm * times**0.5, rel=1e-6, nan_ok=True)
            for key in ("nan", "posinf", "neginf", "zeros"):
                assert getattr(found, key) == pytest.approx(getattr(true, key) * times)


def stats_of_tensor(t: torch.Tensor, deferred: bool) -> Any:
    if not deferred:
        return cpu_stats(t, zero_count=True)
    waiting: DeferredStats[str] = DeferredStats(True, 1 << 30)
    assert waiting.add(1, t, "about")
    ((_, _, found),) = waiting.fetch()
    return found


def test_a_scalar_of_ten_to_the_ninth_is_described_at_once(tmp_path: Path) -> None:
    x = torch.ones(()).expand(10**9)
    data = capture(tmp_path, lambda: torch.narrow(x, 0, 0, 10**9 - 1), level="L1")
    (record,) = [data[name] for name in data if "narrow" in name and "forward" in name]
    assert record["input_args"][0]["Norm"] == pytest.approx(10**4.5) and record["output"][0]["Mean"] == 1
