"""Notice the ways to a tensor's bytes that its version counter does not see."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from probe_format.patching.originals import forget, remember
from probe_format.patching.places import Attribute, Function, attribute

from probe_torch.overrides import has_override, truly_named

__all__ = ["Aliasing", "Touched"]

Touched = Callable[[torch.Tensor], None]
"""Called with the tensor whose bytes may change from now on, before the caller gets his way to them."""

# Methods that hand out memory, or a tensor with a version counter of its own.
_METHODS = (
    "numpy",
    "__array__",
    "untyped_storage",
    "storage",
    "_typed_storage",
    "data_ptr",
    "mutable_data_ptr",
    "__dlpack__",
    "set_",
    "share_memory_",
)


class Aliasing:
    """While entered, `touched(tensor)` is called before bytes of a tensor can be changed behind its
    `_version`.

    That is: reading or setting `tensor.data`, and the methods numpy, __array__, untyped_storage, storage,
    data_ptr, __dlpack__, set_ and share_memory_. Statistics that were computed for a tensor and kept for
    its next appearance must be dropped then. `touched` must not raise and must not touch tensors in these
    ways itself (the call would come back). Leave in the reverse order of entering, if Patches are entered
    too.
    """

    def __init__(self, touched: Touched) -> None:
        self._touched = touched
        self._places: list[Attribute] = []
        self._remembered: list[Function] = []

    def __enter__(self) -> Aliasing:
        names = [name for name in _METHODS if hasattr(torch.Tensor, name)]
        self._places = [attribute(torch.Tensor, name, self._noticing) for name in names]
        self._places.append(attribute(torch.Tensor, "data", self._noticing_data))
        # FSDP fills its parameters in this region, which keeps their versions as they were.
        region = getattr(torch.autograd.grad_mode, "_unsafe_preserve_version_counter", None)
        if region is not None:
            self._places.append(attribute(region, "__exit__", self._noticing_region))
        try:
            for place in self._places:
                place.put()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        for place in self._places:
            place.restore()
        for replacement in self._remembered:
            forget(replacement)
        self._places, self._remembered = [], []

    def _remember(self, replacement: Function, original: Function) -> None:
        remember(replacement, original)
        self._remembered.append(replacement)

    def _noticing(self, original: Function) -> Function:
        touched, is_compiling = self._touched, torch.compiler.is_compiling

        @functools.wraps(original)
        def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(tensor, *args, **kwargs)
            touched(tensor)
            if has_override((tensor,)):
                return truly_named(original, (tensor,), {})(tensor, *args, **kwargs)
            return original(tensor, *args, **kwargs)

        self._remember(method, original)
        return method

    def _noticing_region(self, original: Function) -> Function:
        touched = self._touched

        @functools.wraps(original)
        def leave(region: Any, *error: Any) -> Any:
            try:
                return original(region, *error)
            finally:
                for tensor in region.tensors:
                    touched(tensor)

        return leave

    def _noticing_data(self, original: Any) -> Any:
        touched, is_compiling = self._touched, torch.compiler.is_compiling
        get, put = original.__get__, original.__set__

        def read(tensor: torch.Tensor) -> Any:
            if is_compiling():
                return get(tensor)
            touched(tensor)
            if has_override((tensor,)):
                return truly_named(get, (tensor,), {})(tensor)
            return get(tensor)

        def write(tensor: torch.Tensor, value: Any) -> None:
            if is_compiling():
                put(tensor, value)
                return
            touched(tensor)
            if isinstance(value, torch.Tensor):  # if not, the next line raises torch's error
                touched(value)
            (truly_named(put, (tensor,), {}) if has_override((tensor,)) else put)(tensor, value)

        made: Any = property(read, write, doc=original.__doc__)
        self._remember(made.__get__, get)
        self._remember(made.__set__, put)
        return made
