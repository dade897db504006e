"""Describe any tensor of torch in the general way, also one whose numbers come later."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from probe_format.journal import events
from probe_format.tensors import PT_DTYPES, Stats, checksum_of, pt_bytes, stats_json
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.describe import CommonLeaf, Placement, TensorOptions

from probe_torch.aside import aside, outside

from .described import Described, described
from .inflight import InFlight
from .statistics import DeferredStats, cpu_stats, raw_bytes
from .sums import GradientSum, summed
from .tensor_view import TensorView, view_of

__all__ = ["AnyLeaf"]

_T: Any = torch._C.TensorBase
_NO_STATS = stats_json(Stats())
_NOT_COMPLETE = "a collective was still writing it, and was not waited for"


class AnyLeaf(CommonLeaf):
    """Describe tensors from their views, at once or later.

    The numbers of those on a device are fetched many at a time, and those of an unfinished collective when the run has
    waited for it.

    inflight: the memory that collectives are writing.
    """

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[dict[str, Any]], None],
        *,
        late: bool,
    ) -> None:
        """Describe with these options, as `TensorLeaf` has them."""
        self._refs = itertools.count(1)
        super().__init__(options, coverage, append, self._refs)
        self._append = append
        self.inflight = InFlight()
        self._late = late
        self._waiting = DeferredStats(options.zero_count, options.bound)
        self._contents = itertools.count(1)

    def _describe_sum(self, placement: Placement, total: GradientSum, path: ValuePath) -> Described:
        shares = total.views()
        if any(self._in_flight(p) for p in shares):
            return self._not_complete(placement, path, shares)
        view = summed(shares)
        found = self._described(view, steady=False)
        if placement.wants_file and found.content:
            file = self._files.save(placement, path, "pt", self._parts(view))
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
                with outside():
                    p = summed(shares)
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
        with outside():
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
