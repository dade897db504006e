"""Notice the ways to a tensor's bytes that its version counter does not see."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from probe_runtime.patching import (
    Attribute,
    Function,
    attribute,
    attributes_of,
    forget_original,
    original_of,
    remember_original,
)

from probe_torch.compiling import is_compiling
from probe_torch.tensors.silent import SILENT, Answer, is_silent_op, tensors_in

from .overrides import has_override, truly_named

__all__ = ["Aliasing", "Touched", "Wrote"]

Touched = Callable[[torch.Tensor], None]
"""Called with a tensor before the caller gets access to its bytes, which may change from then on."""

Wrote = Callable[[], None]
"""Called when any tensor may have been written without a change of its version."""


def _nothing() -> None:
    """Do nothing."""


class Aliasing:
    """Report, while entered, what may change a tensor's bytes without raising its `_version` (`silent.SILENT`).

    touched: called with a tensor before its bytes can be changed so.
    wrote: called after a call that may have written any tensor so.

    Statistics that were computed for a tensor and kept for its next appearance must be dropped then. Neither may
    raise, nor touch tensors in these ways itself (it would be called again). Leave in the reverse order of
    entering, if Patches are entered too.
    """

    def __init__(self, touched: Touched, wrote: Wrote = _nothing) -> None:
        self._touched = touched
        self._wrote = wrote
        self._places: list[Attribute] = []
        self._remembered: list[Function] = []

    def __enter__(self) -> Aliasing:
        self._places = [
            place
            for row in SILENT
            if (make := self._maker(row.answer)) is not None
            for place in attributes_of(((path, name) for path, names in row.places for name in names), make)
        ]
        self._places.append(attribute(torch.Tensor, "data", self._noticing_data))
        _listeners.append(self._wrote)
        try:
            for place in self._places:
                place.put()
        except BaseException:
            self._leave()
            raise
        return self

    def _maker(self, answer: Answer) -> Callable[[Function], Function] | None:
        if answer is Answer.HANDED_OUT:
            return self._noticing
        return _calling_listeners if answer is Answer.CALL else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        for place in self._places:
            place.restore()
        if self._wrote in _listeners:
            _listeners.remove(self._wrote)
        for replacement in self._remembered:
            forget_original(replacement)
        self._places, self._remembered = [], []

    def _remember(self, replacement: Function, original: Function) -> None:
        remember_original(replacement, original)
        self._remembered.append(replacement)

    def _noticing(self, original: Function) -> Function:
        touched = self._touched

        @functools.wraps(original)
        def method(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(owner, *args, **kwargs)
            if isinstance(owner, torch.Tensor):
                touched(owner)
                if has_override((owner,)):
                    return truly_named(original, (owner,), {})(owner, *args, **kwargs)
            else:  # a process group, which writes into its arguments
                for tensor in tensors_in((args, kwargs)):
                    touched(tensor)
            return original(owner, *args, **kwargs)

        self._remember(method, original)
        return method

    def _noticing_data(self, original: Any) -> Any:
        touched = self._touched
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


_listeners: list[Wrote] = []
_silent: dict[str, bool] = {}
_made: dict[int, tuple[Callable[[], Function | None], Function]] = {}


def _calling_listeners(original: Function) -> Function:
    """Return a replacement that calls every listener; one per process, as compiled code is guarded by its identity."""
    known = _made.get(id(original))
    if known is not None and known[0]() is original:
        return known[1]
    held = _holding(original)
    made = _build(original, held)
    remember_original(made, original_of(original))
    _made[id(original)] = held, made
    return made


def _holding(original: Function) -> Callable[[], Function | None]:
    """Return what gives the function that is called, which may be a wrapper of ours, without keeping it alive.

    What a dumped step put in place for itself, and all that it holds, would stay for good; and a wrapper that is held
    more often than before is looked for in the whole process at `stop()`, as if the user had kept it.
    """
    which = id(original)

    def forget(_: object) -> None:
        if _made is not None and which in _made:  # it is None where Python is about to exit
            forget_original(_made.pop(which)[1])

    try:
        return weakref.ref(original, forget)
    except TypeError:  # written in C: torch's own, which stays
        return lambda: original


def _build(original: Function, held: Callable[[], Function | None]) -> Function:
    compiling = is_compiling
    operators = (torch._ops.OpOverload.__call__, torch._ops.OpOverloadPacket.__call__)
    of_operators = any(original_of(original) is original_of(each) for each in operators)
    torchs = original_of(original)

    @functools.wraps(torchs)
    def call(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return torchs(*args, **kwargs)
        original = held() or torchs
        if not _listeners or (of_operators and not _may_be_silent(args[0])):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            for wrote in _listeners:
                wrote()

    return call


def _may_be_silent(op: Any) -> bool:
    name = getattr(op, "_name", None) or op._qualified_op_name
    known = _silent.get(name)
    if known is None:
        known = _silent[name] = is_silent_op(op)
    return known
