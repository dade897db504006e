"""Describe the fake tensors of a step as a dump would real ones, and count their files instead of writing them."""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from attrs import evolve
from probe_format.jsonio import members
from probe_format.tensors import PT_DTYPES, pt_frame
from probe_format.values import ValuePath
from probe_runtime.collect import UNTOLD
from probe_runtime.describe import Placement, StepFiles, TensorOptions
from probe_runtime.planning import CountedFiles, typical_numbers
from torch._subclasses.fake_tensor import FakeTensor

from probe_torch.tensors.leaf import TensorLeaf
from probe_torch.tensors.tensor_view import TensorView


class PlannedLeaf(TensorLeaf):
    """Describe fake tensors with typical numbers. What is named and left out is decided as in a dump."""

    def __init__(self, options: TensorOptions, *given: Any, files: CountedFiles, **more: Any) -> None:
        """Begin a step, as `TensorLeaf` does. files: gets the tensor files."""
        super().__init__(options, *given, **more)
        write = partial(_once, files) if options.share else files.write
        self._files = StepFiles(TensorOptions(options.directory, share=False), *given, write=write)
        self._contents = itertools.count(1)
        self._content_of: defaultdict[Hashable, int] = defaultdict(self._contents.__next__)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._typical = partial(typical_numbers, options)

    def _views(self, t: torch.Tensor) -> list[TensorView]:
        (found,) = super()._views(t)
        if type(t) is not FakeTensor:
            return [found]
        return [evolve(found, type="torch.Tensor", bits=t)]  # whose memory `_number` tells apart

    def _content(self, placement: Placement, path: ValuePath, p: TensorView) -> tuple[bytes, dict[str, Any]]:
        if _as_in_a_dump(p):
            return super()._content(placement, path, p)
        numbers = self._typical(p.dtype, prod(p.shape))
        rest: dict[str, Any] = {
            key: numbers.pop(key) for key in ("zero_count", "md5", "sketch") if key in numbers
        }
        return members(numbers), rest

    def _file(self, placement: Placement, path: ValuePath, p: TensorView, number: int = 0) -> bytes:
        if _as_in_a_dump(p):
            return super()._file(placement, path, p, number)
        if not placement.wants_file or not prod(p.shape):
            return b""
        name = p.dtype.removeprefix("torch.")
        size = prod(p.shape) * getattr(torch, name).itemsize
        # There are no elements to make a CRC of: the number that stands for them takes its place.
        head, tail = pt_frame(name if name in PT_DTYPES else "uint8", p.shape, size, self._number(p.bits))
        data: Any = np.broadcast_to(np.uint8(0), size)  # as long as the tensor's, without its memory
        return self._files.save(placement, path, "pt", [head, memoryview(data), tail])

    def _number(self, t: torch.Tensor | None) -> int:
        """Return a number that stands for the elements of ``t``.

        Tensors of the same memory, layout and dtype get the same one if nothing wrote in between. (A dump finds equal
        files by their bytes, and so finds these.) A tensor whose writes torch does not count gets one of its own.
        """
        if t is None or t.is_inference():
            return next(self._contents)
        storage = t.untyped_storage()
        self._storages[storage._cdata] = storage  # held, or another gets its address
        seen = t.shape, t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()
        return self._content_of[storage._cdata, t._version, t.dtype, *seen]


def _as_in_a_dump(p: TensorView) -> bool:
    """Return whether a dump would say the same of ``p``: a real tensor, or one of which it has no numbers either."""
    return p.data is not None or p.reason == UNTOLD


def _once(files: CountedFiles, name: str, parts: Sequence[bytes | memoryview], folder: object) -> int:
    """Count a file, or a second name of an earlier one with the same elements, dtype and shape."""
    return files.once(name, parts, folder, bytes(parts[0]))
