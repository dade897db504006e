"""Compute the statistics of torch tensors (spec/statistics.md).

Tensors on a CPU are read at their address. Tensors on an accelerator are reduced there and fetched many at
a time, so that Probe does not synchronise the device in the middle of a step.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from attrs import define, field, frozen
from probe_format.tensors import Stats, distinct, memory_at, repeated, stats_at, stats_of, with_denormals

from .plain import is_dense

A = TypeVar("A")

# The C methods themselves: torch.Tensor's attributes may be patched while we run.
_T: Any = torch._C.TensorBase
_V: Any = torch._C._VariableFunctions
_L: Any = torch._C._linalg  # type: ignore[attr-defined]

_NAMES = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
_NARROW = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
#: dtype -> how numpy reads its elements, or their bits, and the name of the format that these bits are of.
_NUMPY = {
    kind: (f"u{kind.itemsize}", name.replace("_", "")) if name in _NARROW.split() else (name, None)
    for name in f"{_NAMES} {_NARROW}".split()
    if (kind := getattr(torch, name, None))
}
#: Floats of a byte, of which a device can do little by itself.
FLOAT8 = tuple(kind for kind in _NUMPY if kind.is_floating_point and kind.itemsize == 1)


def flat(t: torch.Tensor) -> torch.Tensor:
    """Return the elements of a detached strided tensor as a 1-D view in storage order; a copy if it has holes."""
    if t.is_contiguous():
        return _T.view(t, -1)  # type: ignore[no-any-return]
    if is_dense(t.shape, _T.stride(t)):
        return _T.as_strided(t, (t.numel(),), (1,))  # type: ignore[no-any-return]
    return _T.view(_T.contiguous(t), -1)  # type: ignore[no-any-return]


def raw_bytes(t: torch.Tensor) -> memoryview:
    """Return the bytes of a detached strided CPU tensor in C order: its own memory if it is so ordered, else a copy."""
    if t.numel() == 0:
        return memoryview(b"")
    return memoryview(_bytes(_T.contiguous(t))).cast("B")


def _bytes(t: torch.Tensor) -> Any:
    """Return the memory of a contiguous CPU tensor.

    Tensor.numpy() would make the storage unresizable for good, which breaks FSDP and ``resize_``.
    """
    memory = memory_at(_T.data_ptr(t), _T.numel(t) * _T.element_size(t))
    memory.owner = t  # keeps the tensor alive as long as the buffer
    return memory


@with_denormals
def cpu_stats(t: torch.Tensor, *, zero_count: bool = False, sketch: bool = False) -> Stats | None:
    """Return the statistics of a detached strided CPU tensor of any shape; None when its dtype is not supported.

    sketch: whether to make a sketch too, if the dtype is one of real floats.
    """
    if not t.numel():
        return stats_of(np.empty(0), zero_count=zero_count)
    if t.dtype is torch.complex32:
        t = _T.to(t, torch.complex64)
    if t.dtype not in _NUMPY:
        return None
    kind, narrow = _NUMPY[t.dtype]
    # A sketch is of the elements in their order, each as often as it is there.
    sketch = sketch and t.dtype.is_floating_point
    t, times = (_T.contiguous(t), 1) if sketch else once(t)
    one = flat(t)
    where = _T.data_ptr(one), one.numel(), narrow or kind
    found = stats_at(*where, threads=torch.get_num_threads, zero_count=zero_count, sketch=sketch)
    if found is None:
        array = np.frombuffer(_bytes(one), kind)
        found = stats_of(array, narrow=narrow, zero_count=zero_count, sketch=sketch)
    return repeated(found, times)


def once(t: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the elements that have memory of their own, and how often an expanded tensor repeats each of them."""
    shape, times = distinct(t.shape, _T.stride(t))
    return (t if times == 1 else _T.as_strided(t, shape, _T.stride(t))), times


@frozen
class Deferred(Generic[A]):
    """Describe one tensor whose numbers are still on the device.

    number: of its hole in the journal.
    about: what the caller wants back with the numbers.
    numbers: max, min, mean and norm, as 0-d tensors on the device.
    copy: the tensor as it was, if it may have to be read once more; None where these numbers say everything.
    boolean: whether the tensor is one of booleans.
    times: how often each element is repeated.
    """

    number: int
    about: A
    numbers: Sequence[torch.Tensor]
    copy: torch.Tensor | None
    boolean: bool
    times: int


@define
class DeferredStats(Generic[A]):
    """Fetch the numbers of many tensors in one transfer.

    The numbers are those of the moment in which a tensor is added, even if it is written afterwards.

    zero_count: whether zeros are counted too.
    bound: how many bytes the copies may have.
    waiting: the tensors whose numbers are not fetched yet.
    held: bytes of their copies.
    most: how many tensors may wait.
    """

    zero_count: bool
    bound: int
    waiting: list[Deferred[A]] = field(factory=list)
    held: int = 0
    most: int = 256
    _lock: threading.RLock = field(factory=threading.RLock, repr=False)

    def add(self, number: int, t: torch.Tensor, about: A) -> bool:
        """Start the reductions of a detached strided tensor; return False when its dtype is not supported."""
        dtype = t.dtype
        t, times = once(t)
        copy = None
        if dtype in FLOAT8:
            t = copy = _T.to(t, torch.float32)  # which a device can reduce
        elif dtype.is_floating_point or dtype.is_complex or self.zero_count:
            t = copy = _T.clone(t)
        numbers = _reduced(t)
        if numbers is None:
            return False
        waits = Deferred(number, about, numbers, copy, dtype is torch.bool, times)
        with self._lock:
            self.waiting.append(waits)
            self.held += 0 if copy is None else copy.numel() * copy.element_size()
        return True

    @property
    def full(self) -> bool:
        return len(self.waiting) >= self.most or self.held > self.bound

    def fetch(self, *, wait: bool = True) -> Iterator[tuple[int, A, Stats]]:
        """Yield number, about and statistics of everything that waits, in one transfer per device and dtype.

        wait: whether to fetch in any case; else nothing is fetched unless enough tensors wait.
        """
        if not wait and not self.full:
            return
        with self._lock:
            waiting, self.waiting, self.held = self.waiting, [], 0
        values = iter(_fetched([x for d in waiting for x in d.numbers]))
        for d, *four in zip(waiting, values, values, values, values, strict=True):
            yield d.number, d.about, repeated(self._finished(d, *four), d.times)

    def _finished(self, d: Deferred[A], high: Any, low: Any, mean: float, norm: float) -> Stats:
        finite = all(x - x == 0.0 for x in (high, low, mean, norm))
        vanished = norm < 1e-150 and (high != 0.0 or low != 0.0)  # the squares went below float64
        if d.copy is not None and (not finite or vanished or self.zero_count):
            full = cpu_stats(_T.cpu(d.copy), zero_count=self.zero_count)
            assert full is not None  # what can be reduced can be read
            return full
        return Stats(bool(high), bool(low), mean, norm) if d.boolean else Stats(high, low, mean, norm)


def _reduced(t: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """Return max, min, mean and norm of a tensor, each by one operator if it has floats.

    None when its dtype is not supported. Mean and norm are float64, or float32 where the device has no float64.
    """
    dtype = t.dtype
    # No wider integer holds a uint64.
    if (dtype not in _NUMPY and dtype is not torch.complex32) or dtype is torch.uint64:
        return None
    one = flat(t)
    wide = torch.float64 if t.device.type in ("cpu", "cuda") else torch.float32
    if dtype.is_complex:
        one = _V.abs(_T.to(one, torch.complex128 if wide is torch.float64 else torch.complex64))
    elif dtype in (torch.uint16, torch.uint32, torch.bool):
        one = _T.to(one, torch.int64)
    low, high = _V.aminmax(one)
    if not one.dtype.is_floating_point:
        one = _T.to(one, wide)
    return high, low, _V.mean(one, dtype=wide), _L.linalg_vector_norm(one, dtype=wide)


def _fetched(scalars: Sequence[torch.Tensor]) -> list[Any]:
    """Return the values of 0-d tensors, in one transfer per device and dtype."""
    places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for n, scalar in enumerate(scalars):
        places.setdefault((scalar.device, scalar.dtype), []).append(n)
    values = [None] * len(scalars)
    for alike in places.values():
        table = _T.cpu(_V.stack([scalars[n] for n in alike]))
        for n, value in zip(alike, _T.tolist(table), strict=True):
            values[n] = value
    return values
