"""Numbers of a CUDA device in one launch: by Triton's interpreter here, on the device where there is one."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from probe_torch.tensors.statistics import cpu_stats, flat
from torch import Tensor

if not torch.cuda.is_available() and not os.environ.get(
    "TRITON_INTERPRET"
):  # which Triton reads as it is imported; hatch.toml sets it
    pytest.skip("TRITON_INTERPRET=1 is not set", allow_module_level=True)
pytest.importorskip("triton")

from probe_torch.tensors import device_table, partials
from probe_torch.tensors.device_table import DeviceTable
from tables_here import CUDA, numbers

DTYPES = [
    *("float32", "float16", "bfloat16", "float64", "complex32", "complex64", "complex128", "bool", "uint8"),
    *("int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
]


def drawn(dtype: str, n: int, seed: int, finite: bool) -> Tensor:
    rng = np.random.default_rng(seed)
    kind: torch.dtype = getattr(torch, dtype)
    raw = torch.from_numpy(rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8))
    if dtype == "bool":
        return (raw & 1).view(kind)
    t = raw.view(kind)
    if not finite or not (kind.is_floating_point or kind.is_complex):
        return t
    if kind.is_complex:
        return torch.view_as_complex(torch.randn(n, 2, dtype=torch.float64)).to(kind)
    return torch.nan_to_num(t.to(torch.float64), 0.0, 1.0, -1.0).to(kind)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("dtype", [name for name in DTYPES if hasattr(torch, name)])
def test_every_bit_pattern(dtype: str, finite: bool) -> None:
    sizes = (1, 15, 16, 17, 1023, 1025, 4097, 9001)
    tensors = [drawn(dtype, n, n, finite) for n in sizes]
    tensors += [tensors[-1][:9000].view(90, 100).t(), tensors[-1][::3], tensors[4][:1].expand(5, 7)]
    for t, found in zip(tensors, numbers(*tensors), strict=True):
        wanted = cpu_stats(t, zero_count=True)
        assert wanted is not None
        for name in ("nan", "posinf", "neginf", "zeros"):
            assert getattr(found, name) == getattr(wanted, name), name
        for name in ("max", "min", "finite_max", "finite_min"):
            one, other = getattr(found, name), getattr(wanted, name)
            assert type(one) is type(other)
            wide = t.dtype.is_complex and one is not None
            assert (
                one == (pytest.approx(other, rel=1e-14, nan_ok=True) if wide else other)
                or one != one != other
            ), name
        size = abs(wanted.norm or 1.0)
        assert found.norm == pytest.approx(wanted.norm, rel=1e-6, nan_ok=True)
        assert found.mean == pytest.approx(wanted.mean, rel=1e-6, abs=1e-7 * size, nan_ok=True)


@pytest.mark.parametrize(
    "values", [[1e300, -1e300, 5e299], [1e-300] * 3, [5e-324] * 2, [1e200, 1e-200, 3.0], [1.7e308] * 5]
)
def test_squares_neither_overflow_nor_vanish(values: list[float]) -> None:
    t = torch.tensor(values, dtype=torch.float64)
    (found,) = numbers(t)
    wanted = cpu_stats(t)
    assert wanted is not None
    assert (found.mean, found.norm) == (
        pytest.approx(wanted.mean, rel=1e-14),
        pytest.approx(wanted.norm, rel=1e-14),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_sketches_are_those_of_the_cpu(dtype: str) -> None:
    tensors = [
        torch.randn(n, dtype=torch.float64).to(getattr(torch, dtype)) for n in (1, 16, 17, 4096, 70001)
    ]
    tensors += [tensors[3].view(64, 64).t(), torch.tensor([1.0, float("inf")]).to(tensors[0].dtype)]
    for t, found in zip(tensors, numbers(*tensors, sketch=True), strict=True):
        wanted = cpu_stats(t, sketch=True)
        assert wanted is not None and found.sketch == wanted.sketch


def test_the_first_tensors_rows_are_gone_before_the_next_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a table has."""
    monkeypatch.setattr(device_table, "ROWS", 16)
    tensors = [torch.full((n * 100 + 1,), float(n)) for n in range(60)]
    assert [s.max for s in numbers(*tensors)] == [float(n) for n in range(60)]


def test_the_kernels_columns_are_the_tables() -> None:
    assert flat(torch.ones(2, 3).t()).is_contiguous() and partials.BRAIN.value == 6


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_a_step_waits_for_nothing_and_launches_once_for_each_tensor() -> None:
    x = torch.randn(1000, 1000, device="cuda")
    table = DeviceTable[int](True, False)
    table.add(0, x, 0)
    list(table.fetch())
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as told:
        torch.cuda.set_sync_debug_mode("error")
        try:
            for n in range(100):
                table.add(n, x, n)
                x += 1
            found = {number: stats for number, _, stats in table.fetch(wait=False)}
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    ran = [event for event in told.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert sum("partials" in event.name for event in ran) == 100
    assert len(ran) <= 210, {event.name for event in ran}  # ours, the run's own, and one copy
    found |= {number: stats for number, _, stats in table.fetch()}
    first = cpu_stats(x.cpu() - 100)
    assert first is not None and len(found) == 100
    assert found[0].mean == pytest.approx(first.mean, abs=1e-5)
    assert found[99].mean == pytest.approx((first.mean or 0) + 99, abs=1e-4)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_side_streams_and_threads() -> None:
    table = DeviceTable[int](False, False)
    side = [torch.cuda.Stream() for _ in range(3)]
    wanted = {}
    for n in range(300):
        with torch.cuda.stream(side[n % 3]):
            t = torch.full((5000 + n,), float(n), device="cuda")
            assert table.add(n, t, n)
            t.fill_(-1.0)
        wanted[n] = float(n)
    assert {number: stats.max for number, _, stats in table.fetch()} == wanted
