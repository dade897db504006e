"""Notice the ways to a tensor's bytes that its version counter does not see."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from probe_runtime.patching import Function, Held, attributes_of, original_of, place, replaced

from probe_torch.compiling import is_compiling
from probe_torch.tensors.silent_writes import SILENT, Answer, is_silent_op, is_writing_op, tensors_in

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
        self._held = Held(_nothing)

    def __enter__(self) -> Aliasing:
        places = [
            each
            for row in SILENT
            if (make := _MAKERS.get(row.answer)) is not None
            for each in attributes_of(((path, name) for path, names in row.places for name in names), make)
        ]
        places.append(place(torch.Tensor, "data", _noticing_data))
        _told_of_access.append(self._touched)
        _listeners.append(self._wrote)
        try:
            self._held = replaced(places)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._held.undo()
        if self._touched in _told_of_access:
            _told_of_access.remove(self._touched)
        if self._wrote in _listeners:
            _listeners.remove(self._wrote)


_told_of_access: list[Touched] = []
_listeners: list[Wrote] = []
_silent: dict[str, bool] = {}
_writing: dict[str, bool] = {}
_excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
_COUNTER = torch._C.DispatchKey.ADInplaceOrView


def _noticing(original: Function) -> Function:
    """Build a method or function that tells of the tensors whose bytes its caller gets."""
    torchs = original_of(original)

    @functools.wraps(torchs)
    def method(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return torchs(owner, *args, **kwargs)
        if isinstance(owner, torch.Tensor):
            _tell_of(owner)
        if args or kwargs:  # what set_() shares, a sparse tensor's values, what a process group writes into
            for tensor in tensors_in((args, kwargs)):
                _tell_of(tensor)
        if isinstance(owner, torch.Tensor) and has_override((owner,)):
            return truly_named(original, (owner,), {})(owner, *args, **kwargs)
        return original(owner, *args, **kwargs)

    return method


def _tell_of(tensor: torch.Tensor) -> None:
    for touched in _told_of_access:
        touched(tensor)


def _noticing_data(original: Any) -> Any:
    """Build a property that tells of the tensors whose data is asked for or replaced."""
    get, put = original.__get__, original.__set__

    def read(tensor: torch.Tensor) -> Any:
        if is_compiling():
            return get(tensor)
        _tell_of(tensor)
        if has_override((tensor,)):
            return truly_named(get, (tensor,), {})(tensor)
        return get(tensor)

    def write(tensor: torch.Tensor, value: Any) -> None:
        if is_compiling():
            put(tensor, value)
            return
        _tell_of(tensor)
        if isinstance(value, torch.Tensor):  # if not, the next line raises torch's error
            _tell_of(value)
        (truly_named(put, (tensor,), {}) if has_override((tensor,)) else put)(tensor, value)

    made: Any = property(read, write, doc=original.__doc__)
    return made


def _calling_listeners(original: Function) -> Function:
    """Build a function that calls every listener."""
    compiling = is_compiling
    operators = (torch._ops.OpOverload.__call__, torch._ops.OpOverloadPacket.__call__)
    of_operators = any(original_of(original) is original_of(each) for each in operators)
    torchs = original_of(original)
    below = torchs is original_of(torch._ops.OpOverload.redispatch)

    @functools.wraps(torchs)
    def call(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return torchs(*args, **kwargs)
        if (
            not _listeners
            or (of_operators and not _may_be_silent(args[0]))
            or (below and not _kept(_writing, args[0], is_writing_op))
        ):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            for wrote in _listeners:
                wrote()

    return call


def _may_be_silent(op: Any) -> bool:
    return _kept(_silent, op, is_silent_op) or (_excluded(_COUNTER) and _kept(_writing, op, is_writing_op))


def _kept(answers: dict[str, bool], op: Any, ask: Callable[[Any], bool]) -> bool:
    name = getattr(op, "_name", None) or op._qualified_op_name
    known = answers.get(name)
    if known is None:
        known = answers[name] = ask(op)
    return known


_MAKERS = {Answer.HANDED_OUT: _noticing, Answer.CALL: _calling_listeners}
