"""Follow recomputation (activation checkpointing), so that a recomputed call gets the number of its first run.

A piece of the model that runs again during backward is entered through a `Segment`, which knows the numbers of the
first run. A recomputed call takes no new number.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field


@define(eq=False)
class Segment:
    """A piece of the model that is recomputed.

    reentrant: whether gradients flow through the graph of the second run.
    numbers: key -> the numbers that its calls got in the first run, in order.
    """

    reentrant: bool
    numbers: dict[str, list[int]] = field(factory=dict)


@define
class Recomputation:
    """One recomputation of a segment.

    segment: what is recomputed.
    used: key -> how many of its calls were made again so far.
    inside: the checkpoints within it that are open now; they will be recomputed in their turn.
    """

    segment: Segment
    used: dict[str, int] = field(factory=dict)
    inside: list[Segment] = field(factory=list)

    def number(self, key: str) -> int | None:
        """Return the number that the next call of ``key`` had in the first run; None when that had no such call."""
        i = self.used.get(key, 0)
        self.used[key] = i + 1
        made = self.segment.numbers.get(key, ())
        if i >= len(made):
            return None
        for segment in self.inside:
            segment.numbers.setdefault(key, []).append(made[i])
        return made[i]


class SegmentState(threading.local):
    """The recomputation state of each thread.

    segment: the innermost segment whose first run is going on, or None.
    replay: the recomputation that is going on, or None.
    """

    segment: Segment | None = None
    replay: Recomputation | None = None

    @contextmanager
    def first(self, segment: Segment) -> Iterator[None]:
        """Enter the first run of ``segment``, a checkpoint.

        Inside a recomputation the segment gets the numbers of the calls that are recomputed.
        """
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
        """Enter a recomputation of ``segment``."""
        before = self.segment, self.replay
        self.segment, self.replay = None, Recomputation(segment)
        try:
            yield
        finally:
            self.segment, self.replay = before
