"""Notice when torch runs the step or zero_grad of an optimizer, each of which it wraps in a `record_function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from probe_runtime.patching import Function, place, replaced
from torch.autograd.profiler import record_function
from torch.optim import optimizer as torchs


@contextmanager
def optimizer_regions(
    names: tuple[str, ...],
    begin: Callable[[], bool],
    end: Callable[[], None],
    before_step: Callable[..., Any],
) -> Iterator[None]:
    """Call ``begin()`` and ``end()`` around these regions of every optimizer, whoever calls it and however it ends.

    No optimizer class is patched, because a learning rate scheduler keeps the step that it finds in an optimizer.

    names: how the names of the regions begin, for example "Optimizer.step#".
    begin: returns whether ``end`` is wanted for this region.
    before_step: torch's global hook, called within a step with the optimizer, the arguments and the keywords.
    """
    listener = _Listener(names, begin, end)
    _listening.append(listener)
    places = [place(record_function, "__enter__", _entering), place(record_function, "__exit__", _leaving)]
    try:
        with replaced(places):
            hook = torchs.register_optimizer_step_pre_hook(before_step)
            try:
                yield
            finally:
                hook.remove()
    finally:
        _listening.remove(listener)


@define(eq=False)
class _Listener:
    names: tuple[str, ...]
    begin: Callable[[], bool]
    end: Callable[[], None]
    entered: dict[int, Any] = field(factory=dict)
    """The regions that began here: start() and stop() may be called from inside a step."""


_listening: list[_Listener] = []


def _entering(original: Function) -> Function:
    @functools.wraps(original)
    def enter(region: Any) -> Any:
        result = original(region)
        for each in tuple(_listening):
            if region.name.startswith(each.names) and id(region) not in each.entered and each.begin():
                each.entered[id(region)] = region
        return result

    return enter


def _leaving(original: Function) -> Function:
    @functools.wraps(original)
    def leave(region: Any, *error: Any) -> Any:
        for each in _listening[::-1]:
            if each.entered.pop(id(region), None) is not None:
                each.end()
        return original(region, *error)

    return leave
