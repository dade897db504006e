"""Notice activation checkpointing, in which `torch.utils.checkpoint` runs a function again during backward.

While collecting, both its kinds (reentrant or not) are entered through a `probe_runtime.collect.recompute.Segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch.utils.checkpoint as checkpoint
from probe_runtime.collect import Segment, SegmentState

__all__ = ["watched_checkpoints"]


@contextmanager
def watched_checkpoints(state: SegmentState) -> Iterator[None]:
    """Report the runs of checkpoints to ``state`` while this is open; undone also when the block raises."""
    function = checkpoint.CheckpointFunction
    generator: Callable[..., Any] = checkpoint._checkpoint_without_reentrant_generator

    def watched_generator(
        fn: Any,
        preserve_rng_state: Any = True,
        context_fn: Any = checkpoint.noop_context_fn,
        *args: Any,
        **kw: Any,
    ) -> Any:
        segment = Segment(reentrant=False)

        def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
            forward, recompute = context_fn()
            return _Both(lambda: state.first(segment), forward), _Both(
                lambda: state.again(segment), recompute
            )

        return generator(fn, preserve_rng_state, contexts, *args, **kw)

    checkpoint.CheckpointFunction = _Watched(function, state)  # type: ignore[assignment,misc]
    checkpoint._checkpoint_without_reentrant_generator = watched_generator
    try:
        yield
    finally:
        checkpoint.CheckpointFunction = function  # type: ignore[misc]
        checkpoint._checkpoint_without_reentrant_generator = generator


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

    def __init__(self, function: Any, state: SegmentState) -> None:
        self._function, self._state = function, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def apply(self, run: Callable[..., Any], *args: Any) -> Any:
        segment = Segment(reentrant=True)
        runs = 0

        def counted(*inner: Any) -> Any:
            nonlocal runs
            runs += 1
            with self._state.first(segment) if runs == 1 else self._state.again(segment):
                return run(*inner)

        return self._function.apply(counted, *args)
