"""Activation checkpointing: which calls are a second run of calls made before.

`torch.utils.checkpoint` runs a function again during backward. While collecting, its two kinds are entered
through a `Segment`, so that a recomputed call is known as call number n of the first run, keeps that number,
and uses up none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch.utils.checkpoint as checkpoint
from attrs import define, field

__all__ = ["Replay", "Segment", "SegmentState", "watched_checkpoints"]


@define(eq=False)
class Segment:
    """One checkpointed piece: the numbers its calls got in the first run, by name, in order."""

    reentrant: bool
    numbers: dict[str, list[int]] = field(factory=dict)


@define
class Replay:
    """One recomputation of a segment.

    inside: the checkpoints within it that are open now; they will be recomputed in their turn.
    """

    segment: Segment
    used: dict[str, int] = field(factory=dict)
    inside: list[Segment] = field(factory=list)

    def number(self, key: str) -> int | None:
        """The number of the next call of ``key`` in the first run; None when that run made no more of them."""
        i = self.used.get(key, 0)
        self.used[key] = i + 1
        made = self.segment.numbers.get(key, ())
        if i >= len(made):
            return None
        for segment in self.inside:
            segment.numbers.setdefault(key, []).append(made[i])
        return made[i]


class SegmentState(threading.local):
    """The segment or recomputation that this thread is in."""

    segment: Segment | None = None
    replay: Replay | None = None

    @contextmanager
    def first(self, segment: Segment) -> Iterator[None]:
        """The first run of ``segment``. A checkpoint inside a recomputation is part of that recomputation."""
        if self.replay is not None:
            inside = self.replay.inside
            inside.append(segment)
            try:
                yield
            finally:
                inside.remove(segment)
            return
        before = self.segment
        self.segment = segment
        try:
            yield
        finally:
            self.segment = before
            if before is not None:  # when the outer one is recomputed, these calls are made again as well
                for key, numbers in segment.numbers.items():
                    before.numbers.setdefault(key, []).extend(numbers)

    @contextmanager
    def again(self, segment: Segment) -> Iterator[None]:
        """A recomputation of ``segment``."""
        before = self.segment, self.replay
        self.segment, self.replay = None, Replay(segment)
        try:
            yield
        finally:
            self.segment, self.replay = before


@contextmanager
def watched_checkpoints(state: SegmentState) -> Iterator[None]:
    """While open, checkpoints tell ``state`` about their runs; undone also when the block raises."""
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
    """Ours around the user's context; enterable more than once (retain_graph recomputes again)."""

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
    """Stands for CheckpointFunction in its module: ``apply`` gets a function that knows which run it is in."""

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
