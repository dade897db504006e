"""Notice activation checkpointing, in which `torch.utils.checkpoint` runs a function again during backward.

While collecting, both its kinds (reentrant or not) are entered through a `probe_runtime.collect.recompute.Segment`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch.utils.checkpoint as checkpoint
from probe_runtime.collect import Segment, SegmentState
from probe_runtime.patching import Held, place, replaced


def watched_checkpoints(state: SegmentState) -> Held:
    """Report the runs of checkpoints to ``state`` until the result is undone."""
    places = [
        place(checkpoint, "CheckpointFunction", _Watched),
        place(checkpoint, "_checkpoint_without_reentrant_generator", _watching),
    ]
    _states.append(state)
    return replaced(places, lambda: _states.remove(state))


_states: list[SegmentState] = []


def _watching(generator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(generator)
    def watched(
        fn: Any,
        preserve_rng_state: Any = True,
        context_fn: Any = checkpoint.noop_context_fn,
        *args: Any,
        **kw: Any,
    ) -> Any:
        if not _states:
            return generator(fn, preserve_rng_state, context_fn, *args, **kw)
        state, segment = _states[-1], Segment(reentrant=False)

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            forward, recompute = context_fn()
            return _Both(lambda: state.first(segment), forward), _Both(
                lambda: state.again(segment), recompute
            )

        return generator(fn, preserve_rng_state, contexts, *args, **kw)

    return watched


class _Both:
    """Enter our context around the user's, as often as retain_graph makes autograd recompute."""

    def __init__(
        self, ours: Callable[[], AbstractContextManager[Any]], users: AbstractContextManager[Any]
    ) -> None:
        self._ours, self._users = ours, users
        self._open: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> Any:
        ours = self._ours()
        ours.__enter__()
        self._open.append(ours)
        try:
            return self._users.__enter__()
        except BaseException:
            self._open.pop().__exit__(None, None, None)
            raise

    def __exit__(self, *exc: Any) -> Any:
        try:
            return self._users.__exit__(*exc)
        finally:
            self._open.pop().__exit__(None, None, None)


class _Watched:
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
