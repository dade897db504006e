"""Describe a tensor of torch as JSON with statistics and file, as a leaf of `probe_format.values`."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from probe_format.excerpts import unsignalled
from probe_format.journal import events, hole
from probe_format.jsonio import dumps, encode, members
from probe_format.statistics import WHOLE
from probe_format.tensors import PT_DTYPES, Stats, checksum_of, flushed, numbers_at, pt_bytes, stats_json
from probe_format.values import UNKNOWN, ValuePath
from probe_format.write import slot_of
from probe_runtime.describe import LARGE, Leaf, Placement, TensorOptions, run_both, summarise

from probe_torch.aside import apart, aside, outside

from .inflight import InFlight
from .objects import object_json
from .plain import FORMS, LOWEST, Form, has_memory, in_order, without_holes
from .statistics import DeferredStats, cpu_stats, raw_bytes
from .sums import GradientSum, summed
from .tensor_view import EXACT, TensorView, capturing, view_of

if TYPE_CHECKING:
    from .device_table import DeviceTable

_T: Any = torch._C.TensorBase
_data_ptr, _is_contiguous, _is_neg, _stride = _T.data_ptr, _T.is_contiguous, _T.is_neg, _T.stride
_threads = torch.get_num_threads
_NO_STATS = stats_json(Stats())
_MESH = ("device_mesh", "placements")
_About = tuple[str, str | None, ValuePath, str]  # record, label, path and dtype
_HAS_TRITON = find_spec("triton") is not None
_NOT_COMPLETE = "a collective was still writing it, and was not waited for"
_NEEDS_GRADIENT = {True: b',"requires_grad":true', False: b',"requires_grad":false'}


class TensorLeaf(Leaf):
    """Describe tensors and the other values of torch. One per step; safe to use from many threads.

    A tensor is read whenever it is met, at that moment. Numbers that the CPU does not have yet leave a hole: those of
    tensors on a device, which are fetched many at a time, and those of a tensor that a collective is still writing,
    which are made once the run has waited for the collective.

    inflight: the memory that collectives are writing.
    straight: whether just the four numbers of a plain tensor (max, min, mean, norm) are wanted, and made at once.
    """

    tensor_types = frozenset((torch.Tensor, torch.nn.Parameter))
    constant_types = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size))
    aside: Any = torch._C.DisableTorchFunction  # code that runs an operation of torch also enters `outside`

    def __init__(self, options: TensorOptions, *given: Any, late: bool = True, **more: Any) -> None:
        """Begin a step, as `Leaf` does. late: whether a tensor in a collective may be described later."""
        super().__init__(options, *given, **more)
        self.inflight = InFlight()
        self._late = late
        self._deferred: DeferredStats[_About] = DeferredStats(options.zero_count, options.bound)
        self._table: DeviceTable[_About] | None = None  # of CUDA devices, from the first tensor on one
        self._counter = self._tensors.counter
        self.straight = options.statistics and not (options.zero_count or options.sketch or options.deferred)
        self._large = LARGE if options.overlap else sys.maxsize

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of ``value`` if it is a value of torch or a numpy array, else UNKNOWN."""
        if issubclass(type(value), torch.Tensor):  # isinstance believes what a proxy calls its class
            placement.found.append((path, value))
            if not placement.show:
                return b"null"
            with aside():
                return self.tensor(placement, value, path)
        if isinstance(value, np.ndarray):
            return self._array(placement, value, path) if placement.show else b"null"
        found = object_json(value)
        return UNKNOWN if found is UNKNOWN else self._object(placement, value, path, found)

    def tensor(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the tensor object of a tensor, within `aside`; write its file when the placement wants one.

        t: a tensor of any class, or a GradientSum.
        """
        # One straight function, because each tensor of a step comes through here.
        for _ in self._counter:  # counts the tensor, without a call
            break
        if (
            self.straight
            and type(t) in EXACT
            and t.is_cpu
            and not (self.inflight.open or self.inflight.works)
        ):
            try:
                # A tensor that is not plain has no address, no form or no memory: one wrapped by torch.func, nested,
                # sparse, lazily zero, or freed.
                pointer, form = _data_ptr(t), FORMS[t.dtype, t.shape]
            except RuntimeError:
                form = None
            file = placement.wants_file
            if (
                form is not None
                and (pointer >= LOWEST or has_memory(t))
                and not _is_neg(t)
                and not (file and form.nbytes >= self._large)
            ):
                # No operation of torch is called for what is contiguous, so no mode and no level of torch.func notices.
                dense = t
                if ordered := _is_contiguous(t):
                    numbers = numbers_at(pointer, form.count, form.kind, _threads)
                else:
                    dense, numbers = _strided_numbers(t, form)
                if numbers is not None:
                    high, low, mean, norm = numbers
                    if norm > (summary := self.summary).least:
                        summary.found.append((norm, placement.record, placement.label, path))
                        if len(summary.found) > summary.MANY:
                            summary.settle()
                    body = {
                        "Max": high,
                        "Min": low,
                        "Mean": mean,
                        "Norm": norm,
                        "requires_grad": t.requires_grad,
                    }
                    json = form.opening + encode(body)[1:]
                    if not (file or self._o.checksum):
                        return json
                    return self._with_bytes(json, placement, path, form, dense, ordered)
        return self._other(placement, t, path)

    def _other(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the object of a tensor that is not plain."""
        if self._table is not None and type(t) in EXACT and t.is_cuda:
            found = self._on_device(self._table, placement, t, path)
            if found is not None:
                return found
        with outside():
            return self._described(placement, path, self._views(t), t.requires_grad)

    def _on_device(
        self, table: "DeviceTable[_About]", placement: Placement, t: torch.Tensor, path: ValuePath
    ) -> bytes | None:
        """Return the object of a contiguous float tensor on a CUDA device, without calling an operation of torch.

        None where that cannot be done: for any other tensor, where its file or checksum is wanted too, or where the
        table has no kernel for it yet.
        """
        try:
            pointer, form = _data_ptr(t), FORMS[t.dtype, t.shape]
        except RuntimeError:
            return None
        in_flight = self.inflight.open or self.inflight.works
        if (
            form is None
            or pointer < LOWEST
            or not _is_contiguous(t)
            or _is_neg(t)
            or in_flight
            or capturing()
        ):
            return None
        if placement.wants_file or self._o.checksum is not None or not self._o.statistics:
            return None
        number = next(self._holes)
        about = placement.record, placement.label, path, form.dtype
        if not table.add_at(number, pointer, t.dtype, form.count, t.device, about):
            return None
        self.waits = self.waits or table.full
        return b"%b%b%b}" % (form.opening[:-1], hole("n", number), _NEEDS_GRADIENT[t.requires_grad])

    def _with_bytes(
        self,
        json: bytes,
        placement: Placement,
        path: ValuePath,
        form: Form,
        dense: torch.Tensor,
        is_ordered: bool,
    ) -> bytes:
        """Return the object of a plain tensor with its file and checksum added, as far as they are wanted.

        json: the object without them.
        dense: the tensor, without holes in its memory.
        is_ordered: whether the elements of ``dense`` are in C order.
        """
        whole = dense if is_ordered else in_order(dense)
        pointer = _data_ptr(whole)
        told = b""
        if placement.wants_file:
            told = self._files.save(placement, path, "pt", form.file_parts(pointer))
        if self._o.checksum is not None:
            told += b',"md5":"%b"' % form.checksum(pointer, self._o.checksum).encode()
        return b"%b%b}" % (json[:-1], told)

    # -- any tensor, from its views -------------------------------------------------------------------

    def _views(self, t: Any) -> list[TensorView]:
        return t.views() if isinstance(t, GradientSum) else [view_of(t)]

    def _described(
        self, placement: Placement, path: ValuePath, views: list[TensorView], requires_grad: bool
    ) -> bytes:
        """Return the object of a tensor that is the sum of ``views``."""
        first = views[0]
        if any(self._in_flight(p) for p in views):
            numbers, file, rest = self._after_its_wait(placement, path, views)
        else:
            p = summed(views)
            describe = partial(self._content, placement, path, p)
            write = partial(self._file, placement, path, p)
            size = 0 if p.data is None else p.data.numel() * p.data.element_size()
            if placement.wants_file and size >= self._large:
                (numbers, rest), file = run_both(describe, apart(write))
            else:
                (numbers, rest), file = describe(), write()
        extra = dict(first.extra)
        mesh = {key: extra.pop(key) for key in _MESH if key in extra}
        head = dumps({"type": first.type, "dtype": first.dtype, "shape": first.shape})[:-1]
        needs = _NEEDS_GRADIENT[requires_grad]
        return b"%b%b%b%b%b%b}" % (head, numbers, needs, members(mesh), file, members({**extra, **rest}))

    def _content(self, placement: Placement, path: ValuePath, p: TensorView) -> tuple[bytes, dict[str, Any]]:
        """Return the four numbers of a tensor, or their hole, and its other keys: checksum, sketch, `unsupported`."""
        data = p.data
        if data is None:
            return members(_NO_STATS) if self._o.statistics else b"", self._unsupported(p.reason)
        # Not deferred where the run flushes denormals: torch, which computes later numbers, would flush them too.
        late = data.device.type != "cpu" or (self._o.deferred and data.numel() > 0 and not flushed())
        if late and self._o.statistics:
            number = next(self._holes)
            about = placement.record, placement.label, path, p.dtype
            table = self._table_of(data)
            if (waiting := table or self._deferred).add(number, data, about):
                self.waits = self.waits or waiting.full
                return hole("n", number), self._more(p, late=table is None)
        rest = self._statistics(p)
        self._summarise(placement, path, {**rest, "dtype": p.dtype})
        four = {key: rest.pop(key) for key in WHOLE if key in rest}
        return members(four), {**rest, **self._more(p)}

    def _statistics(self, p: TensorView) -> dict[str, Any]:
        """Return a tensor's statistics and sketch, as far as they are asked for."""
        o = self._o
        if not (o.statistics or o.sketch):
            return {}
        stats = cpu_stats(_T.cpu(p.data), zero_count=o.zero_count, sketch=o.sketch)
        if stats is not None:
            return stats_json(stats, statistics=o.statistics)
        if not o.statistics:
            return {}
        return {**_NO_STATS, **self._unsupported(f"no statistics for dtype {p.dtype}")}

    def _table_of(self, data: torch.Tensor) -> "DeviceTable[_About] | None":
        """Return the table that gathers numbers of CUDA tensors; None if ``data`` is elsewhere, or without Triton."""
        if self._table is None and data.is_cuda and _HAS_TRITON:
            from .device_table import DeviceTable  # which imports Triton

            self._table = DeviceTable(self._o.zero_count, self._o.sketch)
        return self._table if data.is_cuda else None

    def _more(self, p: TensorView, *, late: bool = False) -> dict[str, Any]:
        """Return the checksum of a tensor, and with ``late`` its sketch, as far as they are asked for.

        late: whether the statistics come later; the sketch does not come with them, so it is made here.
        """
        found: dict[str, Any] = {}
        if self._o.checksum is not None:
            found["md5"] = checksum_of(
                raw_bytes(_T.cpu(p.data if p.bits is None else p.bits)), self._o.checksum
            )
        if late and self._o.sketch and (stats := cpu_stats(_T.cpu(p.data), sketch=True)) is not None:
            found |= stats_json(stats, statistics=False)
        return found

    def _file(self, placement: Placement, path: ValuePath, p: TensorView, number: int = 0) -> bytes:
        if not placement.wants_file or p.data is None or not p.data.numel():
            return b""
        return self._files.save(placement, path, "pt", self._parts(p), number)

    def _parts(self, p: TensorView) -> Sequence[bytes | memoryview]:
        """Return the bytes of a ``.pt`` file for a tensor's data, in its own dtype."""
        on_cpu = _T.cpu(p.data if p.bits is None else p.bits)
        name = str(on_cpu.dtype).removeprefix("torch.")
        if name not in PT_DTYPES:
            on_cpu = _T.contiguous(on_cpu)
            on_cpu = _T.view(on_cpu if on_cpu.dim() else _T.view(on_cpu, 1), torch.uint8)
            name = "uint8"
        return pt_bytes(name, tuple(on_cpu.shape), raw_bytes(on_cpu))

    # -- what comes late ------------------------------------------------------------------------------

    def _in_flight(self, p: TensorView) -> bool:
        data, inflight = p.data, self.inflight
        if data is None or not (p.asynchronous or inflight.open or inflight.works):
            return False
        return inflight.is_open(data, asynchronous=p.asynchronous) or inflight.is_written(data)

    def _after_its_wait(
        self, placement: Placement, path: ValuePath, views: list[TensorView]
    ) -> tuple[bytes, bytes, dict[str, Any]]:
        """Describe a tensor that a collective still writes: return its numbers, its file and its other keys.

        Numbers and file are holes, filled once the run has waited for the collective. Where that is impossible, the
        tensor has no numbers, and a key says why.
        """
        inflight = self.inflight
        pieces = [(p.data, p.asynchronous) for p in views if p.data is not None]
        if not self._late or any(inflight.is_written(data) for data, _ in pieces):
            none = members(_NO_STATS) if self._o.statistics else b""
            return none, b"", self._unsupported(_NOT_COMPLETE)
        number = next(self._holes)
        file = next(self._holes) if placement.wants_file and pieces[0][0].numel() else 0
        open_ones = [data for data, late in pieces if inflight.is_open(data, asynchronous=late)]
        p = placement  # without the tensors that it has found
        later = Placement(p.record, p.category, p.wants_file, p.show, p.label, p.names, p.lost)
        complete = partial(self._complete, later, path, number, file)
        inflight.then(open_ones, lambda waited: complete(views if waited else []))
        return hole("n" if self._o.statistics else "c", number), hole("f", file) if file else b"", {}

    def _complete(
        self, placement: Placement, path: ValuePath, number: int, file: int, views: list[TensorView]
    ) -> None:
        """Fill the holes of a tensor that a collective was writing.

        views: the tensors to add up; empty if the run never waited.
        """
        told: dict[str, Any] = dict(_NO_STATS) if self._o.statistics else {}
        saved = b""
        try:
            if views:
                with outside():
                    p = summed(views)
                    told = {**self._statistics(p), **self._more(p)}
                    summarise(self.summary, placement, path, {**told, "dtype": p.dtype}, iter([number]))
                    saved = self._file(placement, path, p, file)
            else:
                told |= self._unsupported(_NOT_COMPLETE)
        except unsignalled(Exception) as e:  # this runs in the user's own wait
            told |= self._unsupported(f"looking at it raised {type(e).__name__}: {e}"[:200])
        fillers = [(number, members(told))]
        if file and saved != hole("f", file):  # a file that is written behind the run fills its hole itself
            fillers.append((file, saved))
        self._append(events.fill(fillers))

    def late_numbers(self, *, wait: bool = True) -> list[tuple[int, bytes]]:
        """Fetch the numbers that wait on a device, many in one transfer; return (hole, its text) of each tensor.

        wait: whether to fetch all of them; else those that have arrived, or of which enough wait.
        """
        fillers = []
        with outside():
            found = chain(*(x.fetch(wait=wait) for x in self._tables))
            for number, (record, label, path, dtype), stats in found:
                numbers = stats_json(stats)
                self.summary.add(record, slot_of(label, path), {**numbers, "dtype": dtype}, number)
                fillers.append((number, members(numbers)))
        return fillers

    def flush_numbers(self, *, force: bool = False) -> None:
        """Fetch the numbers that wait on a device and fill their holes, if enough of them wait, or with force."""
        if any(x.waiting and (force or x.full) for x in self._tables):
            self.waits = False
            if fillers := self.late_numbers(wait=force):
                self._append(events.fill(fillers))

    @property
    def _tables(self) -> "list[DeferredStats[_About] | DeviceTable[_About]]":
        return [self._deferred] if self._table is None else [self._deferred, self._table]

    def flush(self) -> None:
        """Write everything begun to disk before returning."""
        self.inflight.give_up()
        self.flush_numbers(force=True)
        super().flush()

    def close(self) -> None:
        """End the writing thread, if there is one, and release every tensor."""
        self.flush()
        super().close()


def _strided_numbers(t: torch.Tensor, form: Form) -> tuple[torch.Tensor, Any]:
    """Return a plain tensor that is not contiguous, without holes in its memory, and its four numbers.

    The numbers are None where elements are repeated (a stride is 0).
    """
    if 0 in _stride(t):
        return t, None
    dense = without_holes(t)
    return dense, numbers_at(_data_ptr(dense), form.count, form.kind, _threads)
