"""Describe a tensor of MindSpore as JSON with statistics and file, as a leaf of `probe_format.values`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from probe_format.tensors import Stats, checksum_of, crc32, npy_bytes, stats_json, widen
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.describe import CommonLeaf, Placement, TensorOptions, summarise

from .objects import object_json
from .statistics import statistics_of
from .tensor_view import SPARSE, TensorView, is_tensor, view_of

__all__ = ["Placement", "TensorLeaf", "TensorOptions"]

_NO_STATS = stats_json(Stats())


class TensorLeaf(CommonLeaf):
    """Describe tensors and the other values of MindSpore. One per step; safe to use from many threads.

    Each tensor is read each time: MindSpore's `_version` increases with ``copy_`` but not with ``x[i] = ...``,
    `ops.assign` or an optimizer, so only the bytes show whether a tensor has changed. With the option ``share``, equal
    bytes have one file.
    """

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[dict[str, Any]], None],
        *,
        requires_grad: bool = False,
        begin: Callable[[], None] | None = None,
    ) -> None:
        """Prepare to describe values.

        append: adds an event to the journal.
        requires_grad: whether to record it for each tensor (mindtorch).
        begin: called before the first file is written.
        """
        super().__init__(options, coverage, append)
        self._begin = begin
        self._requires_grad = requires_grad

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of ``value`` if it is a value of MindSpore or a numpy array, else UNKNOWN."""
        if is_tensor(value):
            placement.found.append((path, value))
            return self.tensor(placement, value, path) if placement.show else None
        if isinstance(value, SPARSE):
            return self.tensor(placement, value, path) if placement.show else None
        if isinstance(value, np.ndarray):
            return self._array(placement, value, path) if placement.show else None
        found = object_json(value)
        if isinstance(found, dict) and found.get("class_type") == "mindspore.mint.distributed.P2POp":
            found["tensor"] = self.leaf(placement, value.tensor, (*path, "tensor"))
        return found

    def tensor(self, placement: Placement, t: Any, path: ValuePath, *, gradient: bool = True) -> dict[str, Any]:
        """Return the tensor object (spec/statistics.md); write its file when the placement wants one."""
        self._tensors.add()
        p = view_of(t)
        body: dict[str, Any] = {"type": p.type, "dtype": p.dtype, "shape": p.shape}
        if p.data is None:
            body.update(_NO_STATS if self._o.statistics else {})
            self._coverage.add("unsupported", f"tensor: {p.reason}")
            tail: dict[str, Any] = {"unsupported": p.reason}
        else:
            tail = self._numbers(p, body)
        if self._requires_grad:
            body["requires_grad"] = bool(getattr(t, "requires_grad", False))
        body.update(p.extra)
        if p.data is not None:
            if placement.wants_file and p.data.size:
                body.update(self._file(placement, path, p, body))
            if self._o.checksum is not None:
                body["md5"] = checksum_of(_raw(p), self._o.checksum)
        body.update(tail)
        summarise(self.summary, placement, path, body)
        return body

    def _numbers(self, p: TensorView, body: dict[str, Any]) -> dict[str, Any]:
        """Add the four statistics to ``body``. Return the other numbers, which come last in the object."""
        if not self._o.statistics or p.data is None:
            return {}
        numbers = stats_json(statistics_of(p.data, p.narrow, zero_count=self._o.zero_count))
        for key in _FOUR:
            body[key] = numbers.pop(key)
        return numbers

    def _file(self, placement: Placement, path: ValuePath, p: TensorView, body: dict[str, Any]) -> dict[str, Any]:
        assert p.data is not None
        content = None
        if self._o.share:
            content = (p.dtype, p.data.shape, *self._fingerprint(p, body))
        array = p.data if p.narrow is None else widen(p.data, p.narrow)
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()
        return self._files.save(placement, path, "npy", npy_bytes(array), content)

    def _fingerprint(self, p: TensorView, body: dict[str, Any]) -> tuple[Hashable, ...]:
        """Return a key that is equal only for equal bytes: CRC-32 and statistics, or else a hash."""
        if not self._o.statistics:
            return (hashlib.blake2b(_raw(p), digest_size=16).digest(),)
        return (crc32(_raw(p)), *(str(body[key]) for key in _FOUR))

    def invalidate(self) -> None:
        """Do nothing, because every tensor is read anew here, unlike in probe_torch."""

    def flush_numbers(self, *, force: bool = False) -> None:
        """Do nothing, because all numbers are computed at once here, unlike in probe_torch."""


_FOUR = ("Max", "Min", "Mean", "Norm")


def _raw(p: TensorView) -> memoryview:
    """Return the bytes of the elements in C order and in the tensor's own dtype."""
    assert p.data is not None
    if not p.data.size:
        return memoryview(b"")
    flat: Any = p.data.reshape(-1).view(np.uint8)
    return memoryview(flat)
