"""Taps around any calls, without the rest of Probe: what `probe_mindspore.hooks.gradients` itself sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from attrs import define, field
from mindspore import Tensor, nn
from probe_mindspore.hooks import gradients

Path = tuple[Any, ...]


def tensors(value: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from tensors(item, (*path, i))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, (*path, key))


def number(t: Tensor) -> np.ndarray:
    return t.float().asnumpy().copy()


@define
class Seen:
    """One emission: of which call, in which pass, the gradients of outputs and of inputs by path."""

    call: int
    number: int
    outputs: dict[Path, np.ndarray]
    inputs: dict[Path, np.ndarray]
    partial: bool


@define
class Watched:
    """Taps calls made through ``call``; everything that is seen, in order."""

    seen: list[Seen] = field(factory=list)
    taps: list[Any] = field(factory=list)
    handles: list[Any] = field(factory=list)
    calls: int = 0

    def call(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call, self.calls = self.calls, self.calls + 1
        entry = gradients.enter([*tensors(args), *tensors(kwargs)])
        out = f(*args, **kwargs)

        def emit(n: int, made: Any, given: Any, partial: bool, *_: Any) -> None:
            made = [(path, g) for path, g in made if isinstance(g, Tensor)]  # else its share is not told
            of_outputs = {path: number(g) for path, g in made}
            of_inputs = {path: number(g) for places, g in given for path in places if isinstance(g, Tensor)}
            self.seen.append(Seen(call, n, of_outputs, of_inputs, partial))

        if entry is not None:
            outputs = out if isinstance(out, tuple) else (out,)
            self.handles += gradients.attach(entry, list(tensors(outputs)), self.taps.append, emit)
        return out

    def end(self) -> None:
        for tap in self.taps:
            tap.leftovers()
        for handle in self.handles:
            handle.remove()
        self.taps.clear()
        self.handles.clear()

    def inputs(self, call: int = 0, n: int = 0) -> dict[Path, np.ndarray]:
        return {path: g for s in self.seen if (s.call, s.number) == (call, n) for path, g in s.inputs.items()}

    def outputs(self, call: int = 0, n: int = 0) -> dict[Path, np.ndarray]:
        return {
            path: g for s in self.seen if (s.call, s.number) == (call, n) for path, g in s.outputs.items()
        }


@contextmanager
def every_cell(watched: Watched) -> Iterator[None]:
    """Tap each call of each Cell."""
    original = nn.Cell.__call__

    def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        return watched.call(lambda *a, **k: original(cell, *a, **k), *args, **kwargs)

    nn.Cell.__call__ = call
    try:
        yield
    finally:
        nn.Cell.__call__ = original
        watched.end()
