"""Describe a tensor of MindSpore as JSON with statistics and file, as a leaf of `probe_format.values`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore
import numpy as np
import numpy.typing as npt
from probe_format.excerpts import unsignalled
from probe_format.jsonio import dumps, encode, members
from probe_format.statistics import WHOLE
from probe_format.tensors import Stats, checksum_of, npy_bytes, numbers_at, stats_in, stats_json, widen
from probe_format.values import UNKNOWN, ValuePath
from probe_runtime.describe import Leaf, Placement, TensorOptions

from .forms import FORMS, form_of, is_usual, usual_types
from .objects import object_json
from .tensor_view import DENSE, SPARSE, TensorView, layout_of, read, unreadable, view_of

Array = npt.NDArray[Any]

_NO_STATS = stats_json(Stats())
_threads = partial(mindspore.get_context, "runtime_num_threads")


class TensorLeaf(Leaf):
    """Describe tensors and the other values of MindSpore. One per step; safe to use from many threads.

    Each tensor is read each time: MindSpore's `_version` increases with ``copy_`` but not with ``x[i] = ...``,
    `ops.assign` or an optimizer, so only the bytes show whether a tensor has changed.
    """

    def __init__(
        self,
        options: TensorOptions,
        *given: Any,
        requires_grad: bool = False,
        begin: Callable[[], None] | None = None,
        **more: Any,
    ) -> None:
        """Begin a step, as `Leaf` does.

        requires_grad: whether to record it for each tensor (mindtorch).
        begin: called before the first file is written.
        """
        super().__init__(options, *given, **more)
        self.tensor_types = usual_types()
        self._counter = self._tensors.counter
        self._begin = begin
        self._requires_grad = requires_grad
        # Whether nothing but a file and a checksum comes after a tensor's four statistics.
        self._brief = options.statistics and not (options.zero_count or options.sketch or requires_grad)

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the JSON of ``value`` if it is a value of MindSpore or a numpy array, else UNKNOWN."""
        if isinstance(value, DENSE):
            placement.found.append((path, value))
            return self.tensor(placement, value, path) if placement.show else b"null"
        if isinstance(value, SPARSE):
            return self.tensor(placement, value, path) if placement.show else b"null"
        if isinstance(value, np.ndarray):
            return self._array(placement, value, path) if placement.show else b"null"
        found = object_json(value)
        return UNKNOWN if found is UNKNOWN else self._object(placement, value, path, found)

    def tensor(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the tensor object (spec/statistics.md); write its file when the placement wants one."""
        next(self._counter)
        if not (self._brief and is_usual(type(t))):  # type: ignore[arg-type]
            return self._described(placement, view_of(t), path, t)
        form = found = None
        try:
            try:
                form = FORMS[id(t._dtype), t._shape]
            except KeyError:
                form = form_of(t)
            own = t.__dict__  # where a tensor of a usual class may have more to tell
            if form.brief and t.init is None and not (("layout" in own or _SHARDS in own) and layout_of(t)):
                elements = read(t, form)
                address = elements.__array_interface__["data"][0]  # `ctypes` makes objects for it
                found = numbers_at(address, form.size, form.brief, _threads)
        except unsignalled(Exception) as e:
            return self._described(placement, unreadable(t, form, e), path, t)
        if form is None or found is None:
            return self._described(placement, view_of(t), path, t)
        high, low, mean, norm = found
        numbers = {"Max": high, "Min": low, "Mean": mean, "Norm": norm}
        body = form.head + encode(numbers)[1:]
        if placement.wants_file or self._o.checksum is not None:
            body = body[:-1] + self._bytes(placement, path, form.narrow, elements.reshape(form.shape)) + b"}"
        if norm > (summary := self.summary).least:
            summary.found.append((norm, placement.record, placement.label, path))
            if len(summary.found) > summary.MANY:
                summary.settle()
        return body

    def _described(self, placement: Placement, p: TensorView, path: ValuePath, t: Any) -> bytes:
        body: dict[str, Any] = {"type": p.type, "dtype": p.dtype, "shape": p.shape}
        if p.data is None:
            if p.error is not None:
                self.met(p.error)
            body.update(_NO_STATS if self._o.statistics else {})
            tail = self._unsupported(p.reason)
        else:
            tail = self._numbers(p, body)
        if self._requires_grad:
            body["requires_grad"] = bool(getattr(t, "requires_grad", False))
        body.update(p.extra)
        self._summarise(placement, path, {**body, **tail})
        told = b"" if p.data is None else self._bytes(placement, path, p.narrow, p.data)
        return b"%b%b%b}" % (dumps(body)[:-1], told, members(tail))

    def _numbers(self, p: TensorView, body: dict[str, Any]) -> dict[str, Any]:
        """Add the four statistics to ``body``. Return the other numbers, which come last in the object."""
        o = self._o
        if not (o.statistics or o.sketch) or p.data is None:
            return {}
        stats = stats_in(p.data, narrow=p.narrow, zero_count=o.zero_count, sketch=o.sketch, threads=_threads)
        numbers = stats_json(stats, statistics=o.statistics)
        body |= {key: numbers.pop(key) for key in WHOLE if o.statistics}
        return numbers

    def _bytes(self, placement: Placement, path: ValuePath, narrow: str | None, elements: Array) -> bytes:
        """Write the file if one is wanted. Return the members of the tensor object that tell of its bytes.

        elements: in the tensor's shape.
        """
        told = b""
        if placement.wants_file and elements.size:
            begin, self._begin = self._begin, None
            if begin is not None:
                begin()
            array = elements if narrow is None else widen(elements, narrow)
            told = self._files.save(placement, path, "npy", npy_bytes(array))
        if self._o.checksum is not None:
            told += members({"md5": checksum_of(_raw(elements), self._o.checksum)})
        return told


_SHARDS = "hsdp_effective_shard_size"


def _raw(elements: Array) -> memoryview:
    """Return the bytes of the elements in C order and in the tensor's own dtype."""
    if not elements.size:
        return memoryview(b"")
    flat: Any = elements.reshape(-1).view(np.uint8)
    return memoryview(flat)
