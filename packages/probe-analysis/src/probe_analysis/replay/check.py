"""Replay the calls of a dump, and rank them by how far what was recorded is from the exact result."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from probe_format.errors import FormatError
from probe_format.names import with_direction

from probe_analysis.calls.run import Call, Progress, Run, Source, runs_of
from probe_analysis.calls.skipped import Skipped
from probe_analysis.result import Framed

from .replayed import MEMORY, Replayed, replay
from .replayer import replayer_of


@frozen(eq=False, repr=False)
class Check(Framed):
    """Hold what the replay of a dump found.

    calls: (run, what was found) of each forward and each backward pass that was replayed or should have been, in the
        order of the forward calls.
    notes: of each run that has it, what is lost.
    skipped: the label of each run that cannot be read, and why.
    """

    calls: Sequence[tuple[Run, Replayed]] = field(repr=False)
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(factory=dict)
    columns = "run call wrong slot dtype error units limit not_replayed line"

    @property
    def state(self) -> str:
        return "right" if self.first is None else "wrong"

    @property
    def ranked(self) -> list[tuple[Run, Replayed]]:
        """Return those that were replayed, the one that is the farthest off its limit first."""
        done = [each for each in self.calls if each[1].error is not None]
        return sorted(done, key=lambda each: each[1].units / each[1].limit, reverse=True)

    @property
    def first(self) -> tuple[Run, Replayed] | None:
        """Return the first that is wrong, in the order of execution; None where every one is right."""
        return next((each for each in self.calls if each[1].wrong), None)

    @property
    def reasons(self) -> Mapping[str, int]:
        """Return why passes were not replayed -> how many, the most frequent first."""
        found = Counter(each.why.partition(":")[0] for _, each in self.calls if each.error is None)
        return dict(found.most_common())

    @property
    def sentence(self) -> str:
        if self.first is not None:
            return self.first[1].sentence
        done = len(self.ranked)
        worst = self.ranked[0][1]
        far = f"{worst.call.name} has {worst.units:.3g} of the {worst.limit:.3g} units that it may have"
        return f"All {done} passes that were replayed are right; {far}."

    def blamed(self) -> Iterator[tuple[str, str, Call]]:
        """Yield each pass that is wrong, in the order of execution."""
        return (("result", each.sentence, each.call) for _, each in self.calls if each.wrong)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each pass: the farthest off first, and last those that were not replayed."""
        for run, each in (*self.ranked, *(each for each in self.calls if each[1].error is None)):
            error = each.error
            values = (error.relative, each.units, each.limit) if error is not None else (None, None, None)
            what = run.label, each.call.name, each.wrong, each.slot, each.dtype
            yield *what, *values, each.why, each.line


def check(
    dump: Source,
    *,
    step: int | None = None,
    rank: int | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Check:
    """Replay the calls of a dump at task ``tensor``, forward and backward, in float64 on the CPU.

    step, rank: only these; None for all.
    memory: bytes that one call may need; a larger one is not replayed, and counted.
    progress: called with (label, calls replayed, calls in all).
    A rank that cannot be read is skipped, and noted. Raises FormatError when none can be read, or the dump has no call
    of a function that can be replayed.
    """
    found: list[tuple[Run, Replayed]] = []
    lost: list[str] = []
    skipped = Skipped()
    for run in runs_of(dump, step=step, rank=rank):
        own = []
        try:
            if run.rank.lost:
                lost.append(f"{run.label}: {run.rank.lost}")
            calls = [call for call in run.calls if call.kind == "api" and not call.backward]
            for n, call in enumerate(calls, start=1):
                own += [(run, each) for each in replay_call(run, call, memory)]
                if progress is not None:
                    progress(run.label, n, len(calls))
            found += own
        except FormatError as error:
            skipped.leave(run.label, error)
    skipped.unless(found)
    result = Check(tuple(found), tuple(lost), skipped)
    if not found:
        raise FormatError(f"{dump} has no call of a function: it is replayed from a dump at level L1 or mix.")
    if not result.ranked:
        why = "; ".join([*(f"{n}: {reason}" for reason, n in result.reasons.items()), *result.remarks])
        how = "Record with task: tensor, level: L1 or mix."
        raise FormatError(f"No call of {dump} can be replayed ({why}). {how}")
    return result


def replay_call(run: Run, call: Call, memory: int = MEMORY) -> Iterator[Replayed]:
    """Yield what the replay of a function's forward call found, and of its backward pass where that is recorded."""
    backward = run.by_name.get(with_direction(call.name, "backward"))
    replayer = replayer_of(run.framework)
    if backward is None or run.rank.header.get("input_gradients") != "whole":
        yield from replay(call, replayer, backward, memory)
        return
    yield from replay(call, replayer, None, memory)
    yield Replayed(backward, why="gradients of inputs are from all who use them (MindSpore 2.7)")
