"""Fetch the statistics of tensors on a CUDA device without waiting for it: one launch a tensor, one copy for many.

No tensor is kept or read twice: its kernel is queued on the current stream, behind whatever wrote the tensor and
before whatever writes it next, and leaves rows of partial numbers in a table. The rows of many tensors are copied
into pinned memory behind the run; a CUDA event tells when they have arrived, and only the end of a step waits for
them.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field
from probe_format.statistics import SKETCH_SUMS
from probe_format.tensors import Stats, not_finite, repeated, rounded

from probe_torch.aside import outside

from . import partials as kernels
from .statistics import FLOAT8, flat, once

A = TypeVar("A")
_T: Any = torch._C.TensorBase
_data_ptr = _T.data_ptr
_V: Any = torch._C._VariableFunctions
_C: Any = torch._C

_BLOCK = 1024  # elements that a program takes at a time
_SHARE = 4 * _BLOCK  # elements per program, until there are _PROGRAMS of them
_PROGRAMS = 1024
ROWS = 1 << 13
WIDTH = 11 + SKETCH_SUMS
#: How many tensors wait until their rows are copied.
MOST = 256

_KINDS = {
    **dict.fromkeys(FLOAT8, kernels.BYTES),
    **dict.fromkeys((torch.float32, torch.float16), kernels.FLOAT),
    torch.bfloat16: kernels.BRAIN,
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), kernels.COMPLEX),
    **dict.fromkeys(
        (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), kernels.WHOLE
    ),
    **dict.fromkeys((torch.uint16, torch.uint32), kernels.WHOLE),
    torch.float64: kernels.DOUBLE,
    torch.uint64: kernels.UNSIGNED,
}
#: dtype -> the dtype as which a kernel reads its memory, where that is another.
_READ_AS = {
    torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64,
    torch.bool: torch.int8, torch.bfloat16: torch.int16, **dict.fromkeys(FLOAT8, torch.uint8),
}  # fmt: skip

#: The kernels that Triton has compiled, by what each is compiled for (see `DeviceTable._add`).
_COMPILED: dict[Any, Any] = {}


@define
class _Waiting(Generic[A]):
    """Describe a tensor whose rows are in a table.

    number: of its hole in the journal.
    about: what the caller gets back with the numbers.
    first: index of its first row.
    count: how many elements were read.
    times: how often each element is repeated.
    sketched: whether the rows have the sums of a sketch too.
    """

    number: int
    about: A
    first: int
    dtype: torch.dtype
    count: int
    times: int
    sketched: bool


@define
class StreamRows(Generic[A]):
    """Hold the rows that kernels queued on one stream write, and the tensors that they are of.

    raw: the stream's address.
    used: how many rows are taken.
    """

    raw: int
    stream: Any
    rows: torch.Tensor
    used: int = 0
    waiting: list[_Waiting[A]] = field(factory=list)


@define
class DeviceTable(Generic[A]):
    """Hold the rows of tensors on CUDA devices until they have come to the host.

    The numbers are those of the moment in which a tensor is added, even if it is written afterwards.

    zero_count: whether zeros are counted.
    sketch: whether tensors of real floats get a sketch.
    full: whether enough tensors wait that `fetch` should be called.
    """

    zero_count: bool
    sketch: bool
    _streams: dict[tuple[int, int], StreamRows[A]] = field(factory=dict)
    _sent: list[tuple[Any, torch.Tensor, list[_Waiting[A]]]] = field(factory=list)
    _bytes: dict[tuple[torch.device, torch.dtype], torch.Tensor] = field(factory=dict)
    _lock: threading.RLock = field(factory=threading.RLock, repr=False)
    full: bool = False

    @property
    def waiting(self) -> bool:
        return bool(self._sent) or any(stream.waiting for stream in list(self._streams.values()))

    def add(self, number: int, t: torch.Tensor, about: A) -> bool:
        """Start the reduction of a detached strided tensor; return False when its dtype is not supported."""
        dtype = t.dtype
        kind = _KINDS.get(dtype)
        if kind is None:
            return False
        sketched = self.sketch and dtype.is_floating_point
        t, times = (_T.contiguous(t), 1) if sketched else once(t)
        one = flat(t)
        count = one.numel()
        if (other := _READ_AS.get(dtype)) is not None:
            one = _T.view(_T.as_strided(one, (count,), (1,)), other)  # a lone element may have any stride
        return self._add(
            _Waiting(number, about, 0, dtype, count, times, sketched), t.device, _data_ptr(one), one
        )

    def add_at(
        self, number: int, pointer: int, dtype: torch.dtype, count: int, device: torch.device, about: A
    ) -> bool:
        """Start the reduction of ``count`` floats in C order at an address, without calling an operation of torch.

        Return False where the kernel for them is not compiled yet: Triton compiles it from the tensor, by `add`.
        """
        return self._add(_Waiting(number, about, 0, dtype, count, 1, self.sketch), device, pointer, None)

    def _add(self, w: _Waiting[A], device: torch.device, pointer: int, one: torch.Tensor | None) -> bool:
        count, kind = w.count, _KINDS[w.dtype]
        programs = -(-count // _SHARE)
        programs = programs if programs < _PROGRAMS else _PROGRAMS
        # Triton compiles a kernel for each of these; its other arguments are alike in every call.
        key = w.dtype, w.sketched, count >> 31 > 0, pointer & 15 == 0, device.index
        with self._lock:
            compiled = _COMPILED.get(key)
            if one is None and compiled is None:
                return False
            here = self._here(device, programs)
            of_byte = self._of_byte(device, w.dtype) if kind is kernels.BYTES else here.rows
            given = here.rows, of_byte, count, here.used, _BLOCK, kind, w.sketched, WIDTH
            elsewhere = device.type == "cuda" and device.index != _C._cuda_getDevice()
            with torch.cuda.device(device) if elsewhere else nullcontext():
                if compiled is None:
                    _COMPILED[key] = kernels.partials[(programs,)](one, *given)
                else:  # as Triton launches a kernel, once it has looked it up
                    known = compiled.function, compiled.packed_metadata, None, None, None
                    compiled.run(programs, 1, 1, here.raw, *known, pointer, *given)
            w.first = here.used
            here.waiting.append(w)
            here.used += programs
            if len(here.waiting) >= MOST:
                self.full = True
        return True

    def _here(self, device: torch.device, programs: int) -> StreamRows[A]:
        """Return the rows of the current stream, with room for one more row of each program."""
        here = self._of_stream(device)
        if here.used + programs > ROWS:
            self._send(here)
        return here

    def _of_stream(self, device: torch.device) -> StreamRows[A]:
        raw = _C._cuda_getCurrentRawStream(device.index)
        here = self._streams.get((device.index, raw))
        if here is None:
            with outside():
                rows = _V.empty((ROWS, WIDTH), dtype=torch.int64, device=device)
            here = self._streams[device.index, raw] = StreamRows(raw, torch.cuda.current_stream(device), rows)
        return here

    def _send(self, here: StreamRows[A]) -> None:
        """Queue a copy of the rows to the host on their stream; rows of later kernels may then overwrite them."""
        with outside(), torch.cuda.stream(here.stream):
            host = _V.empty((here.used, WIDTH), dtype=torch.int64, pin_memory=True)
            _T.copy_(host, _V.narrow(here.rows, 0, 0, here.used), non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(here.stream)
        self._sent.append((event, host, here.waiting))
        here.used, here.waiting = 0, []

    def fetch(self, *, wait: bool = True) -> Iterator[tuple[int, A, Stats]]:
        """Yield (number, about, statistics) of the tensors whose rows have arrived; start the copy of the others.

        wait: whether to wait until the rows of all tensors have arrived.
        """
        with self._lock:
            for here in self._streams.values():
                if here.waiting:
                    self._send(here)
            self.full = False
            sent, self._sent = self._sent, []
        late = []
        for each in sent:
            event, host, waiting = each
            if wait:
                event.synchronize()
            elif not event.query():
                late.append(each)
                continue
            yield from self._merged(host.numpy(), waiting)
        with self._lock:
            self._sent = late + self._sent

    def _merged(
        self, rows: npt.NDArray[np.int64], waiting: Sequence[_Waiting[A]]
    ) -> Iterator[tuple[int, A, Stats]]:
        """Yield (number, about, statistics) of each tensor, merged from its rows.

        rows: as `partials` leaves them, shape (rows, columns).
        waiting: the tensors, in the order of their rows.
        """
        starts = [w.first for w in waiting]
        numbers = rows.view(np.float64)
        with np.errstate(all="ignore"):
            top = np.maximum.reduceat(numbers[:, 0], starts).tolist()
            low = np.minimum.reduceat(numbers[:, 1], starts).tolist()
            counts = np.add.reduceat(rows[:, 2:6], starts).tolist()
            sums = np.add.reduceat(numbers[:, 6:], starts).tolist()
        ends = [*starts[1:], len(rows)]
        for w, high, deep, found, own, end in zip(waiting, top, low, counts, sums, ends, strict=True):
            if not (w.dtype.is_floating_point or w.dtype.is_complex):
                column = rows[w.first : end, :2]
                column = column.view(np.uint64) if w.dtype is torch.uint64 else column
                whole = int(column[:, 0].max()), int(column[:, 1].min())
                high, deep = map(bool, whole) if w.dtype is torch.bool else whole
            yield w.number, w.about, repeated(self._stats(w, high, deep, found, own), w.times)

    def _stats(self, w: _Waiting[A], high: Any, low: Any, counts: list[int], sums: list[float]) -> Stats:
        nan, above, below, zero = counts
        zeros = zero if self.zero_count else None
        if nan or above or below:
            if nan + above + below == w.count:
                high = low = None
            return not_finite(nan, above, below, high, low, zeros)
        total, squares, large, large_squares, small_squares, *projections = sums
        norm = math.sqrt(squares)
        if large_squares or small_squares:
            norm = math.hypot(norm, math.sqrt(large_squares) * 2.0**600, math.sqrt(small_squares) * 2.0**-600)
        mean = total / w.count + large / w.count * 2.0**64
        return Stats(high, low, mean, norm, zeros=zeros, sketch=rounded(projections) if w.sketched else None)

    def _of_byte(self, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Return the value of each byte as a float8 of this dtype: float32, shape (256,), on the device."""
        found = self._bytes.get((device, dtype))
        if found is None:
            all_bytes = _V.arange(256, dtype=torch.uint8, device=device)
            found = self._bytes[device, dtype] = _T.to(_T.view(all_bytes, dtype), torch.float32)
        return found
