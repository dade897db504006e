"""Notice activation checkpointing, in which `torch.utils.checkpoint` runs a function again during backward.

While collecting, each run of such a function, reentrant or not, is reported as the first or a repeated run of a
segment (`probe_runtime.collect.recompute`).
"""

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any

import torch.utils.checkpoint as checkpoint
from probe_runtime.collect import Segment, SegmentState
from probe_runtime.patching import Held, listening, place


def watched_checkpoints(state: SegmentState) -> Held:
    """Report the runs of checkpoints to ``state`` until the result is undone."""
    places = [
        place(checkpoint, "CheckpointFunction", _CountedFunction),
        place(checkpoint, _GENERATOR, _watching),
    ]
    return listening(_states, state, places)


_Parts = Generator[None, None, None]
_states: list[SegmentState] = []
_GENERATOR = "_checkpoint_without_reentrant_generator"
if hasattr(checkpoint, f"{_GENERATOR}_impl"):  # since torch 2.15, and the older name calls it
    _GENERATOR += "_impl"


def _watching(generator: Callable[..., _Parts]) -> Callable[..., _Parts]:
    """Return a generator in place of torch's, which has two parts: between them a function runs for the first time.

    Torch's generator gets a function that tells when it runs again. Its other arguments are the user's and stay as
    they are: contexts around the user's would be refused with ``debug=True``, and would hide the user's from torch.
    """

    @functools.wraps(generator)
    def watched(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> _Parts:
        if not _states:
            return generator(fn, *args, **kwargs)
        state, segment = _states[-1], Segment(reentrant=False)

        def again(*inner: Any, **named: Any) -> Any:
            with state.again(segment):
                return fn(*inner, **named)

        return _around(generator(again, *args, **kwargs), state, segment)

    return watched


def _around(parts: _Parts, state: SegmentState, segment: Segment) -> _Parts:
    next(parts)
    try:
        with state.first(segment):
            yield
    except BaseException as e:
        with contextlib.suppress(StopIteration):  # a context of the user's swallows it
            parts.throw(e)
        return
    yield from parts


class _CountedFunction:
    """Replace CheckpointFunction in its module, so that ``apply`` gets a function that counts its runs."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def apply(self, run: Callable[..., Any], *args: Any) -> Any:
        if not _states:
            return self._function.apply(run, *args)
        state, segment = _states[-1], Segment(reentrant=True)
        runs = 0

        def counted(*inner: Any) -> Any:
            nonlocal runs
            runs += 1
            with state.first(segment) if runs == 1 else state.again(segment):
                return run(*inner)

        return self._function.apply(counted, *args)
