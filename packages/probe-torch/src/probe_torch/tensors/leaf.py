"""Describe a tensor of torch as JSON with statistics and file, as a leaf of `probe_format.values`."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from attrs import evolve
from probe_format.journal import events
from probe_format.jsonio import dumps, encode, loads
from probe_format.tensors import PT_DTYPES, Stats, checksum_of, numbers_at, pt_bytes, stats_json
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.collect import faults_reported
from probe_runtime.describe import CommonLeaf, Placement, TensorOptions, slot_of, summarise

from probe_torch.aside import aside

from .described import Described, described
from .inflight import InFlight
from .objects import object_json
from .plain import FORMS
from .sharing import Seen, Sharing, memory, owns_dispatch
from .statistics import DeferredStats, cpu_stats, raw_bytes
from .sums import GradientSum
from .tensor_view import EXACT, ORDINARY, TensorView, view_of

__all__ = ["Placement", "TensorLeaf", "TensorOptions"]

_T: Any = torch._C.TensorBase
_data_ptr, _is_contiguous = _T.data_ptr, _T.is_contiguous
_keys: Any = torch._C._dispatch_keys
_current_pass = torch._C._current_graph_task_id
_NO_STATS = stats_json(Stats())


class TensorLeaf(CommonLeaf):
    """Describe tensors and the other values of torch. One per step; safe to use from many threads."""

    tensor_types = frozenset((torch.Tensor, torch.nn.Parameter))
    constant_types = frozenset((torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size))

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[dict[str, Any]], None],
        *,
        late: bool = True,
    ) -> None:
        """Describe with these options.

        coverage: counts what cannot be described.
        append: writes an event into the journal.
        late: whether what is incomplete may be described later (``deferred`` in the header).
        """
        self._refs = itertools.count(1)
        super().__init__(options, coverage, append, self._refs)
        self._append = append
        self.sharing = Sharing(options.share)
        self.inflight = InFlight()
        self._late = late
        self._waiting = DeferredStats(options.zero_count, options.bound)
        self._contents = itertools.count(1)
        self._counter = self._tensors.counter
        # Whether the numbers of a plain tensor are four, and taken at once.
        self._straight = options.statistics and not (options.zero_count or options.deferred)

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of ``value`` if it is a value of torch or a numpy array, else UNKNOWN."""
        if isinstance(value, torch.Tensor):
            placement.found.append((path, value))
            if not placement.show:
                return None
            with aside():
                return self.tensor(placement, value, path, gradient=False)
        if isinstance(value, np.ndarray):
            return self._array(placement, value, path) if placement.show else None
        found = object_json(value)
        if isinstance(found, dict) and found.get("type") == "torch.distributed.P2POp":
            found["tensor"] = self.leaf(placement, value.tensor, (*path, "tensor"))
        return found

    def tensor(
        self, placement: Placement, t: Any, path: ValuePath, *, gradient: bool = True
    ) -> dict[str, Any] | bytes:
        """Return the tensor object of a tensor, within `aside`; write its file when the placement wants one.

        It is finished JSON unless something of it comes later.

        t: a tensor of any class, or a GradientSum.
        """
        # One straight function, because each tensor of a step comes through here.
        for _ in self._counter:  # counts it, without a call
            break
        sharing = self.sharing
        at = id(t)
        known, seen = sharing.known, None
        try:
            if at in known:
                seen = known[at]
        except KeyError:  # another thread forgot it meanwhile
            seen = None
        if seen is not None:
            ref, version, pointer, during, requires_grad, json, _, _ = seen
            alive: Any = ref()
            try:
                same = (
                    alive is t
                    and version == t._version
                    and pointer == _data_ptr(t)
                    and requires_grad == t.requires_grad
                    and (during < 0 or during == _current_pass())
                )
            except RuntimeError:  # it has no memory any more
                same = False
            if same:
                return self._again(placement, t, path, seen) if placement.wants_file else json
        if (
            self._straight
            and type(t) in EXACT
            and _keys(t).raw_repr() in ORDINARY
            and _is_contiguous(t)
            and (form := FORMS[t.dtype, t.shape]) is not None
            and not (self.inflight.open or self.inflight.works)
        ):
            # No operation of torch is called here, so no mode and no level of torch.func can notice.
            within = sharing.trust(t, gradient=gradient)
            version, requires_grad, pointer = t._version, t.requires_grad, _data_ptr(t)
            numbers = numbers_at(pointer, form.count, form.kind)
            if numbers is not None:
                high, low, mean, norm = numbers
                body = {"Max": high, "Min": low, "Mean": mean, "Norm": norm, "requires_grad": requires_grad}
                json, cut = form.opening + encode(body)[1:], -1
                if self._o.checksum is not None:
                    json, cut = form.with_checksum(json, pointer, self._o.checksum)
                content = next(self._contents) if placement.wants_file else None
                if within is not None and sharing.open:
                    seen = weakref.ref(t), version, pointer, within, requires_grad, json, cut, content
                    sharing.known[at] = seen
                if norm > self.summary.least:
                    self.summary.keep(f"{placement.record}.{slot_of(placement, path)}", norm)
                if content is None:
                    return json
                return self._with_file(placement, path, json, cut, content, partial(form.file_parts, pointer))
        out = self._any(placement, t, path, gradient)
        return out if "$" in out or "$f" in out else dumps(out)

    def object(self, placement: Placement, t: torch.Tensor, path: ValuePath) -> dict[str, Any]:
        """Return the same as `tensor`, always as a dict."""
        next(self._counter)
        return self._any(placement, t, path, gradient=True)

    aside = staticmethod(aside)

    def _again(self, placement: Placement, t: Any, path: ValuePath, seen: Seen) -> dict[str, Any] | bytes:
        """Return the object of a tensor that is known, with a file. The summary has had its numbers."""
        *_, json, cut, content = seen
        if content is None:
            content = next(self._contents)
            self.sharing.known[id(t)] = (*seen[:-1], content)
        if not content:
            return json
        return self._with_file(placement, path, json, cut, content, lambda: self._fresh_parts(t))

    def _with_file(
        self,
        placement: Placement,
        path: ValuePath,
        json: bytes,
        cut: int,
        content: int,
        parts: Callable[[], Sequence[bytes | memoryview]],
    ) -> dict[str, Any] | bytes:
        """Write a tensor's file and return ``json`` with its keys, ``cut`` bytes before its end."""
        keys = self._files.save(placement, path, "pt", parts, content)
        before, after = json[:cut], json[cut:]
        if "$f" in keys:
            return {**loads(before + b"}"), **keys, **loads(b"{" + after.lstrip(b","))}
        return before + b"," + encode(keys)[1:-1] + after  # a safe file name needs no other encoder

    def _any(
        self, placement: Placement, t: torch.Tensor | GradientSum, path: ValuePath, gradient: bool
    ) -> dict[str, Any]:
        """Describe any tensor."""
        with _outside():
            if isinstance(t, GradientSum):
                out = self._describe_sum(placement, t, path).object(t.requires_grad, {})
            else:
                out = self._one(placement, t, path, gradient)
        summarise(self.summary, placement, path, out)
        return out

    def _one(self, placement: Placement, t: torch.Tensor, path: ValuePath, gradient: bool) -> dict[str, Any]:
        # Taken before reading: another thread may write meanwhile, and Probe itself takes views of it.
        within = None if t.is_inference() or owns_dispatch(t) else self.sharing.trust(t, gradient=gradient)
        version, requires_grad = -1 if within is None else t._version, t.requires_grad
        p = view_of(t)
        if self._in_flight(p):
            found = self._not_complete(placement, path, [p])
            within = None
        else:
            found = self._described(p, steady=within is not None and p.shareable and requires_grad)
        if within is not None and self.sharing.open and p.shareable and "$" not in found.tail:
            json, cut = found.json(requires_grad)
            seen = weakref.ref(t), version, _data_ptr(t), within, requires_grad, json, cut, found.content
            self.sharing.known[id(t)] = seen
        file: dict[str, Any] = {}
        if placement.wants_file and found.content:
            file = self._files.save(placement, path, "pt", lambda: self._fresh_parts(t), found.content)
        return found.object(requires_grad, file)

    def invalidate(self) -> None:
        """Share nothing seen before: tensors may have changed without a change of their version."""
        self.sharing.invalidate()

    def wrote(self) -> None:
        """Share nothing seen before, and never reread what waits: any tensor may have been written unnoticed."""
        self.sharing.invalidate()
        self._waiting.doubt(None)

    def touched(self, t: torch.Tensor) -> None:
        """Stop sharing the memory of ``t``: its bytes may change from now on without a change of its version."""
        with aside():
            self.sharing.touched(t)
            self._waiting.doubt(memory(t))

    def step_begins(self, *, silent: bool) -> None:
        """Fetch what waits, before an optimizer writes.

        silent: True unless the optimizer is known to raise the versions of what it writes.
        """
        with faults_reported("an optimizer's step", "numbers that waited"), aside():
            self.flush_numbers(force=True)  # before the write: non-finite tensors are read again
        self._waiting.doubt(None)
        self.sharing.step_begins(silent=silent)

    def step_ends(self, *, silent: bool) -> None:
        """Note that the optimizer has written."""
        self.sharing.step_ends(silent=silent)

    def _describe_sum(self, placement: Placement, total: GradientSum, path: ValuePath) -> Described:
        shares = total.views()
        if any(self._in_flight(p) for p in shares):
            return self._not_complete(placement, path, shares)
        summed = _summed(shares)
        found = self._described(summed, steady=False)
        if placement.wants_file and found.content:
            file = self._files.save(placement, path, "pt", self._parts(summed))
            found = evolve(found, tail={**file, **found.tail})
        return found

    def _described(self, p: TensorView, *, steady: bool) -> Described:
        body: dict[str, Any] = {"type": p.type, "dtype": p.dtype, "shape": p.shape, **p.extra}
        content = 0
        if p.data is None:
            if self._o.statistics:
                body.update(_NO_STATS)
            body["unsupported"] = p.reason
            self._coverage.add("unsupported", f"tensor: {p.reason}")
        else:
            self._add_numbers(p, p.data, body, steady=steady)
            if p.data.numel():
                content = next(self._contents)
        return described(body, content)

    def _add_numbers(self, p: TensorView, data: torch.Tensor, body: dict[str, Any], *, steady: bool) -> None:
        if self._o.statistics:
            self._numbers(p, data, body, steady=steady)
        if self._o.checksum is not None:
            on_cpu = _T.cpu(p.bits if p.bits is not None else data)
            body["md5"] = checksum_of(raw_bytes(on_cpu), self._o.checksum)

    def _in_flight(self, p: TensorView) -> bool:
        data, inflight = p.data, self.inflight
        if data is None or not (p.asynchronous or inflight.open or inflight.works):
            return False
        return inflight.is_open(data, asynchronous=p.asynchronous) or inflight.is_written(data)

    def _not_complete(self, placement: Placement, path: ValuePath, shares: list[TensorView]) -> Described:
        """Return a tensor that a collective still writes without its numbers, to be added once the run has waited."""
        first = shares[0]
        body: dict[str, Any] = {"type": first.type, "dtype": first.dtype, "shape": first.shape, **first.extra}
        if self._o.statistics:
            body.update(_NO_STATS)
        inflight = self.inflight
        pieces = [(p.data, p.asynchronous) for p in shares if p.data is not None]
        open_ones = [data for data, late in pieces if inflight.is_open(data, asynchronous=late)]
        if not self._late or any(inflight.is_written(data) for data, _ in pieces):
            body["unsupported"] = _NOT_COMPLETE
            self._coverage.add("unsupported", f"tensor: {_NOT_COMPLETE}")
        else:
            ref = body["$"] = next(self._refs)
            left = [len(open_ones)]

            def finish(complete: bool) -> None:
                left[0] -= 1
                if left[0] == 0 or (not complete and left[0] > 0):
                    left[0] = 0 if complete else -1  # what was not waited for is described once
                    self._complete(ref, placement, path, shares if complete else [])

            for data in open_ones:
                inflight.then(data, finish)
        return described(body)

    def _complete(self, ref: int, placement: Placement, path: ValuePath, shares: list[TensorView]) -> None:
        """Write the numbers of a tensor that was described without them.

        shares: the tensors to add up; empty if the run never waited.
        """
        numbers: dict[str, Any] = {}
        try:
            if shares:
                with _outside():
                    p = _summed(shares)
                    assert p.data is not None
                    if self._o.statistics:
                        stats = cpu_stats(_T.cpu(p.data), zero_count=self._o.zero_count)
                        numbers = {} if stats is None else stats_json(stats)
                        if stats is None:
                            numbers["unsupported"] = f"no statistics for dtype {p.dtype}"
                    if self._o.checksum is not None:
                        numbers["md5"] = checksum_of(raw_bytes(_T.cpu(p.data)), self._o.checksum)
                    if placement.wants_file and p.data.numel():
                        numbers.update(self._files.save(placement, path, "pt", self._parts(p)))
            else:
                numbers["unsupported"] = _NOT_COMPLETE
        except Exception as e:  # this runs in the user's own wait
            numbers["unsupported"] = f"looking at it raised {type(e).__name__}: {e}"[:200]
        if "unsupported" in numbers:
            self._coverage.add("unsupported", f"tensor: {numbers['unsupported']}")
        self._append(events.stat([[ref, numbers]]))

    def _numbers(self, p: TensorView, data: torch.Tensor, body: dict[str, Any], *, steady: bool) -> None:
        if data.device.type != "cpu" or (self._o.deferred and data.numel()):
            ref = next(self._refs)
            self.waits = True
            if self._waiting.add(ref, data, steady=steady):
                body.update(_NO_STATS)
                body["$"] = ref
                return
        stats = cpu_stats(_T.cpu(data), zero_count=self._o.zero_count)
        if stats is None:
            body.update(_NO_STATS)
            body["unsupported"] = f"no statistics for dtype {p.dtype}"
            self._coverage.add("unsupported", f"tensor: no statistics for dtype {p.dtype}")
        else:
            body.update(stats_json(stats))

    def flush_numbers(self, *, force: bool = False) -> None:
        """Fetch the numbers that wait on the device, when there are enough of them or it is time."""
        if not self._waiting.waiting or not (force or self._waiting.full):
            return
        with aside():
            self._fetch()

    def _fetch(self) -> None:
        rows = []
        for ref, stats, missing in self._waiting.fetch():
            numbers = stats_json(stats)
            if missing:
                numbers["unsupported"] = missing
            rows.append([ref, numbers])
        self._append(events.stat(rows))

    def flush(self) -> None:
        """Write everything begun to disk before returning."""
        self.inflight.give_up()
        self.flush_numbers(force=True)
        super().flush()

    def _fresh_parts(self, t: torch.Tensor) -> list[bytes | memoryview]:
        """Return the bytes of a ``.pt`` file for a tensor seen before, read anew from its memory."""
        with _outside():
            return self._parts(view_of(t))

    def _parts(self, p: TensorView) -> list[bytes | memoryview]:
        """Return the bytes of a ``.pt`` file for a tensor's data, in its own dtype."""
        data = p.bits if p.bits is not None else p.data
        assert data is not None
        on_cpu = _T.cpu(data)
        name = str(on_cpu.dtype).removeprefix("torch.")
        if name not in PT_DTYPES:
            on_cpu = _T.contiguous(on_cpu)
            on_cpu = _T.view(on_cpu if on_cpu.dim() else _T.view(on_cpu, 1), torch.uint8)
            name = "uint8"
        return pt_bytes(name, tuple(on_cpu.shape), raw_bytes(on_cpu))

    def close(self) -> None:
        """End the writing thread, if there is one, and release every tensor."""
        self.flush()
        super().close()
        self.sharing.invalidate()


_NOT_COMPLETE = "a collective was still writing it, and was not waited for"


def _summed(shares: list[TensorView]) -> TensorView:
    """Return the sum of shares that can be added."""
    first = shares[0]
    if len(shares) == 1:
        return first
    data = functools.reduce(_T.add, [p.data for p in shares])
    return evolve(first, data=data, bits=None)


def _outside() -> AbstractContextManager[Any]:
    """Keep our own operations out of the user's modes (FakeTensorMode, counters, ...) and the levels of torch.func."""
    return aside() if _level() is None else _NoLevels()


_level = torch._C._functorch.peek_interpreter_stack


class _NoLevels:
    """Switch off modes and the levels of torch.func, which would wrap what is made of plain tensors."""

    def __enter__(self) -> None:
        self._modes = aside()
        self._modes.__enter__()
        self._levels = torch._C._DisableFuncTorch()

    def __exit__(self, *exc: Any) -> None:
        del self._levels
        self._modes.__exit__(*exc)
