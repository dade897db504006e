"""Describe tensors without numbers as a dump would describe those of the real run, and count their files."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from attrs import evolve
from probe_format.jsonio import dumps
from probe_format.tensors import PT_DTYPES, pt_frame
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.describe import Placement, StepFiles, TensorOptions
from probe_runtime.planning import CountedFiles, typical_numbers
from torch._subclasses.fake_tensor import FakeTensor

from probe_torch.tensors.described import Described, described
from probe_torch.tensors.leaf import TensorLeaf
from probe_torch.tensors.sharing import Seen
from probe_torch.tensors.tensor_view import TensorView, view_of

__all__ = ["PlannedLeaf"]

_current_pass = torch._C._current_graph_task_id


class PlannedLeaf(TensorLeaf):
    """Describe fake tensors with typical numbers. What is shared, named and left out is decided as in a dump."""

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[dict[str, Any]], None],
        *,
        late: bool,
        files: CountedFiles,
    ) -> None:
        """Describe with these options. files: gets the tensor files; the others as for `TensorLeaf`."""
        super().__init__(options, coverage, append, late=late)
        self._files = StepFiles(options.directory, coverage, append, write=files.write, link=files.link)
        self._content_of: defaultdict[Hashable, int] = defaultdict(self._contents.__next__)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._typical = partial(
            typical_numbers,
            statistics=options.statistics,
            checksum=options.checksum,
            zero_count=options.zero_count,
        )

    def tensor(
        self, placement: Placement, t: Any, path: ValuePath, *, gradient: bool = True
    ) -> dict[str, Any] | bytes:
        """Return the tensor object; count its file when the placement wants one."""
        next(self._counter)
        seen = self.sharing.known.get(id(t))
        if seen is not None and _unchanged(t, seen):
            return self._again(placement, t, path, seen) if placement.wants_file else seen[5]
        return dumps(self._any(placement, t, path, gradient))

    def touched(self, t: torch.Tensor) -> None:
        """Stop sharing the memory of ``t``, if it is the model that may write it."""
        if not _within_fakes():
            super().touched(t)

    def wrote(self) -> None:
        """Share nothing seen before, if it is the model that wrote."""
        if not _within_fakes():
            super().wrote()

    def _one(self, placement: Placement, t: torch.Tensor, path: ValuePath, gradient: bool) -> dict[str, Any]:
        if type(t) is not FakeTensor:
            return super()._one(placement, t, path, gradient)
        within = None if t.is_inference() else self.sharing.trust(t, gradient=gradient)
        p = view_of(t)
        found = self._typical_object(p, self._content(t) if prod(p.shape) else 0)
        # A tensor whose numbers come later is not known again: `TensorLeaf` has nothing to remember then.
        later = self._o.statistics and (self._o.deferred or t.device.type != "cpu")
        if within is not None and self.sharing.open and not later:
            json, cut = found.json(t.requires_grad)
            about = t._version, 0, within, t.requires_grad, json, cut, found.content
            self.sharing.known[id(t)] = (weakref.ref(t), *about)
        file: dict[str, Any] = {}
        if placement.wants_file and found.content:
            file = self._files.save(placement, path, "pt", lambda: self._fresh_parts(t), found.content)
        return found.object(t.requires_grad, file)

    def _content(self, t: torch.Tensor) -> int:
        """Return a number for the elements of ``t``, the same for a tensor of the same memory that nothing wrote since.

        A dump does not trust memory that far, but finds equal files by their bytes, and so these. Where it keeps equal
        files apart, each tensor has a number of its own; so has one whose writes are not counted.
        """
        if not self._o.share or t.is_inference():
            return next(self._contents)
        storage = t.untyped_storage()
        self._storages[storage._cdata] = storage  # held, or another gets its address
        seen = t.shape, t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()
        return self._content_of[storage._cdata, t._version, t.dtype, *seen]

    def _described(self, p: TensorView, *, steady: bool) -> Described:
        if p.data is not None:  # a real tensor
            return super()._described(p, steady=steady)
        return self._typical_object(p, next(self._contents) if prod(p.shape) else 0)

    def _typical_object(self, p: TensorView, content: int) -> Described:
        """Describe a tensor without numbers."""
        p = _as_torchs(p)
        numbers = self._typical(p.dtype, prod(p.shape))
        return described({"type": p.type, "dtype": p.dtype, "shape": p.shape, **p.extra, **numbers}, content)

    def _parts(self, p: TensorView) -> list[bytes | memoryview]:
        if p.data is not None:
            return super()._parts(p)
        name = p.dtype.removeprefix("torch.")
        size = prod(p.shape) * getattr(torch, name).itemsize
        head, tail = pt_frame(name if name in PT_DTYPES else "uint8", p.shape, size, 0)
        data: Any = np.broadcast_to(np.uint8(0), size)  # as long as the tensor's, without its memory
        return [head, memoryview(data), tail]


def _within_fakes() -> bool:
    """Return whether torch works out shapes: the mode is put aside then, and storages are asked for."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None


def _unchanged(t: Any, seen: Seen) -> bool:
    """Return whether what is known of ``t`` still holds, as `TensorLeaf.tensor` asks it; a fake has no address."""
    ref, version, _, during, requires_grad, *_ = seen
    known: Any = ref()
    return bool(
        known is t
        and version == t._version
        and requires_grad == t.requires_grad
        and (during < 0 or during == _current_pass())
    )


def _as_torchs(p: TensorView) -> TensorView:
    """Return the view with the type that the tensor has in the real run."""
    return evolve(p, type="torch.Tensor") if p.type.endswith(".FakeTensor") else p
