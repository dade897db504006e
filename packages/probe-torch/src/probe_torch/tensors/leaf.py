"""Describe a tensor of torch as JSON with statistics and file, as a leaf of `probe_format.values`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from probe_format.journal import events, hole
from probe_format.jsonio import dumps, encode, members
from probe_format.tensors import PT_DTYPES, Stats, checksum_of, numbers_at, pt_bytes, stats_json
from probe_format.values import UNKNOWN, ValuePath
from probe_format.write import Coverage, Summary, slot_of
from probe_runtime.describe import (
    LARGE,
    Leaf,
    Placement,
    TensorOptions,
    run_both,
    summarise,
)

from probe_torch.aside import apart, aside, outside

from .inflight import InFlight
from .objects import object_json
from .plain import FORMS, LOWEST, Form, has_memory, in_order, without_holes
from .statistics import DeferredStats, cpu_stats, raw_bytes
from .sums import GradientSum, summed
from .tensor_view import EXACT, TensorView, view_of

_T: Any = torch._C.TensorBase
_data_ptr, _is_contiguous, _is_neg, _stride = _T.data_ptr, _T.is_contiguous, _T.is_neg, _T.stride
_NO_STATS = stats_json(Stats())
_FOUR = ("Max", "Min", "Mean", "Norm")
_MESH = ("device_mesh", "placements")
_NOT_COMPLETE = "a collective was still writing it, and was not waited for"
_NEEDS_GRADIENT = {True: b',"requires_grad":true', False: b',"requires_grad":false'}


class TensorLeaf(Leaf):
    """Describe tensors and the other values of torch. One per step; safe to use from many threads.

    Each tensor is read each time, at that moment. What the CPU has not yet got leaves a hole: the numbers of tensors on
    a device, which are fetched many at a time, and those of an unfinished collective, until the run has waited for it.

    inflight: the memory that collectives are writing.
    straight: whether the numbers of a plain tensor are four, and taken at once.
    """

    tensor_types = frozenset((torch.Tensor, torch.nn.Parameter))
    constant_types = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size))
    aside: Any = torch._C.DisableTorchFunction  # what runs an operation of torch enters `outside` besides

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[Any], None],
        *,
        late: bool = True,
        numbers: Iterator[int] | None = None,
        summary: Summary | None = None,
    ) -> None:
        """Describe with these options.

        coverage: counts what cannot be described.
        append: writes an event into the journal.
        late: whether what a collective is still writing may be described later.
        numbers, summary: of a step that has another leaf.
        """
        super().__init__(options, coverage, append, numbers, summary)
        self.inflight = InFlight()
        self._late = late
        self._waiting: DeferredStats[tuple[str, str, str]] = DeferredStats(options.zero_count, options.bound)
        self._counter = self._tensors.counter
        # Whether the numbers of a plain tensor are four, and taken at once.
        self.straight = options.statistics and not (options.zero_count or options.deferred)
        self._large = LARGE if options.overlap else sys.maxsize

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of ``value`` if it is a value of torch or a numpy array, else UNKNOWN."""
        if isinstance(value, torch.Tensor):
            placement.found.append((path, value))
            if not placement.show:
                return b"null"
            with aside():
                return self.tensor(placement, value, path)
        if isinstance(value, np.ndarray):
            return self._array(placement, value, path) if placement.show else b"null"
        found = object_json(value)
        if found is UNKNOWN:
            return UNKNOWN
        if found.get("type") == "torch.distributed.P2POp":
            found["tensor"] = self.leaf(placement, value.tensor, (*path, "tensor"))
        return dumps(found)

    def tensor(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the tensor object of a tensor, within `aside`; write its file when the placement wants one.

        t: a tensor of any class, or a GradientSum.
        """
        # One straight function, because each tensor of a step comes through here.
        for _ in self._counter:  # counts it, without a call
            break
        if (
            self.straight
            and type(t) in EXACT
            and t.is_cpu
            and not (self.inflight.open or self.inflight.works)
        ):
            try:
                # What is not plain has none of these, or no memory: wrapped by torch.func, nested, sparse, lazily
                # zero, freed.
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
                ordered = _is_contiguous(t)
                numbers = None
                if ordered or 0 not in _stride(t):  # else elements are repeated
                    dense = t if ordered else without_holes(t)
                    numbers = numbers_at(pointer if dense is t else _data_ptr(dense), form.count, form.kind)
                if numbers is not None:
                    high, low, mean, norm = numbers
                    body = {"Max": high, "Min": low, "Mean": mean, "Norm": norm}
                    body["requires_grad"] = t.requires_grad
                    if norm > (summary := self.summary).least:
                        summary.found.append((norm, placement.record, placement.label, path))
                        if len(summary.found) > summary.MANY:
                            summary.settle()
                    json = form.opening + encode(body)[1:]
                    if not (file or self._o.checksum):
                        return json
                    whole = t if ordered else in_order(dense)
                    return self._with_bytes(json, placement, path, form, _data_ptr(whole))
        with outside():
            views = t.views() if isinstance(t, GradientSum) else self._views(t)
            return self._described(placement, path, views, t.requires_grad)

    def _with_bytes(
        self, json: bytes, placement: Placement, path: ValuePath, form: Form, pointer: int
    ) -> bytes:
        """Add to the object of a plain tensor what comes of its bytes, which are at this address in their order."""
        told = b""
        if placement.wants_file:
            told = self._files.save(placement, path, "pt", form.file_parts(pointer))
        if self._o.checksum is not None:
            told += b',"md5":"%b"' % form.checksum(pointer, self._o.checksum).encode()
        return b"%b%b}" % (json[:-1], told)

    # -- any tensor, from its views -------------------------------------------------------------------

    def _views(self, t: torch.Tensor) -> list[TensorView]:
        return [view_of(t)]

    def _described(
        self, placement: Placement, path: ValuePath, views: list[TensorView], requires_grad: bool
    ) -> bytes:
        """Return the object of a tensor that is the sum of these."""
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
        """Return the four numbers of a tensor, or their hole, and what else is told of its elements."""
        data = p.data
        if data is None:
            self._coverage.add("unsupported", f"tensor: {p.reason}")
            return members(_NO_STATS) if self._o.statistics else b"", {"unsupported": p.reason}
        late = data.device.type != "cpu" or (self._o.deferred and data.numel() > 0)
        if late and self._o.statistics:
            number = next(self._holes)
            about = placement.record, slot_of(placement.label, path), p.dtype
            if self._waiting.add(number, data, about):
                self.waits = True
                return hole("n", number), self._checksum(p)
        rest = self._statistics(p)
        self._summarise(placement, path, {**rest, "dtype": p.dtype})
        four = {key: rest.pop(key) for key in _FOUR if key in rest}
        return members(four), {**rest, **self._checksum(p)}

    def _statistics(self, p: TensorView) -> dict[str, Any]:
        if not self._o.statistics:
            return {}
        stats = cpu_stats(_T.cpu(p.data), zero_count=self._o.zero_count)
        if stats is not None:
            return stats_json(stats)
        why = f"no statistics for dtype {p.dtype}"
        self._coverage.add("unsupported", f"tensor: {why}")
        return {**_NO_STATS, "unsupported": why}

    def _checksum(self, p: TensorView) -> dict[str, Any]:
        if self._o.checksum is None:
            return {}
        return {"md5": checksum_of(raw_bytes(_T.cpu(p.data if p.bits is None else p.bits)), self._o.checksum)}

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
        """Return holes for what a collective still writes, filled once the run has waited: numbers, file and rest."""
        inflight = self.inflight
        pieces = [(p.data, p.asynchronous) for p in views if p.data is not None]
        if not self._late or any(inflight.is_written(data) for data, _ in pieces):
            self._coverage.add("unsupported", f"tensor: {_NOT_COMPLETE}")
            none = members(_NO_STATS) if self._o.statistics else b""
            return none, b"", {"unsupported": _NOT_COMPLETE}
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
                    told = {**self._statistics(p), **self._checksum(p)}
                    summarise(self.summary, placement, path, {**told, "dtype": p.dtype}, iter([number]))
                    saved = self._file(placement, path, p, file)
            else:
                self._coverage.add("unsupported", f"tensor: {_NOT_COMPLETE}")
                told["unsupported"] = _NOT_COMPLETE
        except Exception as e:  # this runs in the user's own wait
            told["unsupported"] = f"looking at it raised {type(e).__name__}: {e}"[:200]
            self._coverage.add("unsupported", f"tensor: {told['unsupported']}")
        fillers = [(number, members(told))]
        if file and saved != hole("f", file):  # behind the run, the file fills its hole itself
            fillers.append((file, saved))
        self._append(events.fill(fillers))

    def late_numbers(self) -> list[tuple[int, bytes]]:
        """Return what belongs in the holes whose numbers wait on a device, in one transfer."""
        fillers = []
        with aside():
            for number, (record, slot, dtype), stats in self._waiting.fetch():
                numbers = stats_json(stats)
                self.summary.add(record, slot, {**numbers, "dtype": dtype}, number)
                fillers.append((number, members(numbers)))
        return fillers

    def flush_numbers(self, *, force: bool = False) -> None:
        """Fetch the numbers that wait on the device, when there are enough of them or it is time."""
        if self._waiting.waiting and (force or self._waiting.full):
            self._append(events.fill(self.late_numbers()))

    def flush(self) -> None:
        """Write everything begun to disk before returning."""
        self.inflight.give_up()
        self.flush_numbers(force=True)
        super().flush()

    def close(self) -> None:
        """End the writing thread, if there is one, and release every tensor."""
        self.flush()
        super().close()
