"""Describe a tensor of torch as JSON with statistics and file, as a leaf of `probe_format.values`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from probe_format.jsonio import dumps, encode, loads
from probe_format.tensors import numbers_at
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.collect import faults_reported
from probe_runtime.describe import Placement, TensorOptions, slot_of, summarise

from probe_torch.aside import aside, outside

from .any_leaf import AnyLeaf
from .objects import object_json
from .plain import FORMS, LOWEST, has_memory, without_holes
from .sharing import Seen, Sharing, memory, owns_dispatch
from .sums import GradientSum
from .tensor_view import EXACT, view_of

__all__ = ["Placement", "TensorLeaf", "TensorOptions"]

_T: Any = torch._C.TensorBase
_data_ptr, _is_contiguous, _is_neg = _T.data_ptr, _T.is_contiguous, _T.is_neg
_current_pass = torch._C._current_graph_task_id


class TensorLeaf(AnyLeaf):
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
        super().__init__(options, coverage, append, late=late)
        self.sharing = Sharing(options.share)
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
            and t.is_cpu
            and not (self.inflight.open or self.inflight.works)
        ):
            try:
                # What is not plain has none of these, or no memory: wrapped by torch.func, nested, sparse, lazily
                # zero, freed, made in inference mode. The version is taken before the tensor is read, because
                # another thread may write meanwhile.
                pointer, version, form = _data_ptr(t), t._version, FORMS[t.dtype, t.shape]
            except RuntimeError:
                form = None
            if form is not None and (pointer >= LOWEST or has_memory(t)) and not _is_neg(t):
                within = sharing.trust(t, gradient=gradient)
                requires_grad = t.requires_grad
                # No operation of torch is called for what is contiguous, so no mode and no level of torch.func notices.
                ordered = _is_contiguous(t)
                dense = t if ordered else without_holes(t)
                numbers = numbers_at(pointer if dense is t else _data_ptr(dense), form.count, form.kind)
                if numbers is not None and (ordered or self._o.checksum is None):
                    high, low, mean, norm = numbers
                    body = {
                        "Max": high,
                        "Min": low,
                        "Mean": mean,
                        "Norm": norm,
                        "requires_grad": requires_grad,
                    }
                    json, cut = form.opening + encode(body)[1:], -1
                    if self._o.checksum is not None:
                        json, cut = form.with_checksum(json, pointer, self._o.checksum)
                    content = next(self._contents) if placement.wants_file else None
                    if within is not None and sharing.open:
                        sharing.known[at] = (
                            weakref.ref(t),
                            version,
                            pointer,
                            within,
                            requires_grad,
                            json,
                            cut,
                            content,
                        )
                    if norm > self.summary.least:
                        self.summary.keep(f"{placement.record}.{slot_of(placement, path)}", norm)
                    if content is None:
                        return json
                    parts = partial(form.file_parts, pointer) if ordered else partial(self._fresh_parts, t)
                    return self._with_file(placement, path, json, cut, content, parts)
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
        before, after = json[:cut], json[cut:]
        if self._files.deferred:
            keys = self._files.save(placement, path, "pt", parts, content)
            return {**loads(before + b"}"), **keys, **loads(b"{" + after.lstrip(b","))}
        name = self._files.write(placement, path, "pt", parts, content)
        return b'%b,"data_name":"%b"%b' % (
            before,
            name.encode(),
            after,
        )  # nothing in a safe file name is escaped

    def _any(
        self, placement: Placement, t: torch.Tensor | GradientSum, path: ValuePath, gradient: bool
    ) -> dict[str, Any]:
        """Describe any tensor."""
        with outside():
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

    def close(self) -> None:
        """End the writing thread, if there is one, and release every tensor."""
        self.flush()
        super().close()
        self.sharing.invalidate()
