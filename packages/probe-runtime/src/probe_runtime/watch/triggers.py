"""Judge steps by the conditions of `when`; where a rank meets one, keep the steps around and dump more (`then`)."""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from probe_format.errors import FormatError
from probe_format.excerpts import error_text, unsignalled
from probe_format.write import Look, amend_report

from probe_runtime.config import Config, Then
from probe_runtime.notice import Notices, notice

from .judges import Judges
from .ring import Ring
from .row import WatchedRow
from .step_seen import StepSeen
from .trigger_file import Trigger, TriggerFile

#: How many steps are remembered whose reports may yet be told a trigger of another rank.
_REMEMBERED = 8


class Triggers:
    """Judge each step of one process at its end, and act where a condition is met. Nothing raises into the run."""

    def __init__(self, config: Config) -> None:
        """Judge steps from now on. Raises ConfigError when a function under `when` is not there."""
        from probe_format.read import origins  # noqa: F401  now: packages may be upgraded before a step is bad

        self._then = config.then or Then()
        if not config.kind.calls:  # a row is no dump
            self._then = evolve(self._then, level=self._then.level or "mix", task=self._then.task or "tensor")
        self._row: WatchedRow | None = None
        self.tell: Callable[[Sequence[Trigger]], None] = lambda triggers: None
        """Called with the triggers of one step."""
        self._ring: Ring | None = None
        self._file = TriggerFile(config.dump_path)
        self._judges = Judges(config.when)
        self._fired: list[Trigger] = []
        self._skips: list[Callable[[], bool]] = []
        self._recent: deque[StepSeen] = deque(maxlen=max(_REMEMBERED, config.keep.last if config.keep else 0))
        self._pid = os.getpid()
        self._notices = Notices()
        self.observe = self._judges.observe
        self.moments = frozenset(each.subject for each in config.when if each.kind == "norm")
        """The gradients of parameters that the conditions look at."""
        self.take(config, None)

    def take(self, config: Config, ring: Ring | None) -> None:
        """Go by a configuration from the next step on, whose conditions are the same. ring: keeps the last steps."""
        self._ring = ring
        then = {"level": self._then.level, "task": self._then.task}
        raised: dict[str, Any] = {key: value for key, value in then.items() if value is not None}
        if not config.kind.calls:
            raised["list"] = ()  # it chooses what is in the rows
        config = evolve(config, **raised)
        self.config = evolve(config, tensor_list=()) if config.kind.files else config  # files of every tensor
        """The configuration of the steps that are dumped because of a trigger."""

    def skipped(self, skips: Callable[[], bool]) -> None:
        """Take an update that a loss scaler may have skipped. skips: returns whether it has."""
        self._skips.append(skips)

    def watched(self, row: WatchedRow) -> None:
        """Take the row of the step that ends (task `watch`)."""
        self._row = row
        try:
            self._judges.watched(row)
        except unsignalled(Exception) as error:
            self._fail(error)

    def of(self, number: int) -> Trigger | None:
        """Return the trigger because of which a step is dumped; None where there is none."""
        if not self._then.raises:
            return None
        covers = (each for each in self._fired if each.at <= number < each.at + self._then.steps)
        return next(covers, None)

    def cause_of(self, number: int) -> dict[str, Any]:
        """Return what the header of a step says of the trigger because of which it is dumped."""
        trigger = self.of(number)
        return {} if trigger is None else trigger.cause

    def close(self) -> None:
        """Put back what the signals did before."""
        self._judges.close()

    def ended(
        self, number: int, rank: int | None, looks: Mapping[Path, Look], report: Mapping[str, Any] | None
    ) -> None:
        """Take a step that has ended, whether it was dumped or not.

        rank: of this process; None where the run is not distributed.
        looks: the folders that it was dumped in, and what was seen of the records there.
        report: its report.
        """
        if os.getpid() != self._pid:  # a fork()ed child
            return
        skips, self._skips = tuple(self._skips), []
        row, self._row = self._row, None
        seen = StepSeen(number, rank, self._judges.values(), report, looks, skips, row)
        if looks:
            self._recent.append(evolve(seen, report=None))
        try:
            told = [] if rank is None else self._news(rank)
            self._follow([each for each in told if each.step < number], number)
            if self._ring is not None and self.of(number) is None and number > self._last_kept:
                self._ring.ended(looks, number)
            self._follow([each for each in told if each.step >= number], number)
            if len(self._fired) < self._then.times and number >= self._next:
                self._judge(seen)
        except unsignalled(Exception) as error:
            self._fail(error)
        self._judges.over()

    @property
    def _last_kept(self) -> int:
        return max((each.step for each in self._fired), default=-1)

    @property
    def _next(self) -> int:
        """Return the first step that may meet a condition: those that a trigger has dumped are over by then."""
        ends = (each.at + (self._then.steps if self._then.raises else 0) for each in self._fired)
        return max(ends, default=0)

    def _news(self, rank: int) -> list[Trigger]:
        try:
            return [each for each in self._file.news() if each.rank != rank]
        except unsignalled(OSError) as error:
            self._fail(error)
            return []

    def _judge(self, seen: StepSeen) -> None:
        met = self._judges.met(seen)
        if not met:
            return
        at = seen.number + (1 if seen.rank is None else 2)  # others may have begun the next one
        triggers = [Trigger(seen.number, at, each.text, why, seen.rank) for each, why in met]
        try:
            for each in triggers if seen.rank is not None else ():
                self._file.write(each)
        except unsignalled(OSError) as error:
            self._fail(error)
        self._fire(triggers)

    def _follow(self, told: Sequence[Trigger], number: int) -> None:
        """Do what other ranks have asked for. number: the step that ends now."""
        for step in sorted({each.step for each in told}):
            triggers = [each for each in told if each.step == step]
            if any(each.step == step for each in self._fired):
                self._amend(triggers)  # it met this rank as well
            elif len(self._fired) < self._then.times:
                self._fire([evolve(each, at=max(each.at, number + 1)) for each in triggers])

    def _fire(self, triggers: Sequence[Trigger]) -> None:
        """Keep the steps that the ring holds, tell why, and have the next steps dumped. triggers: of one step."""
        first = triggers[0]
        self._fired.append(first)
        kept = () if self._ring is None else self._ring.let_stay(first.step)
        self._amend(triggers)
        lines = [f"step {first.step} meets {each.when!r}{_on(each.rank)}: {each.why}" for each in triggers]
        held = [seen for seen in self._recent if seen.number in (kept or (first.step,))]
        if held and not any(each.when.startswith("non_finite") for each in triggers):
            lines.append(f"`probe nan` says of what is kept: {StepSeen.sentence(held)}")
        if kept:
            lines.append(f"Kept for good: {_steps(kept[0], kept[-1])}.")
        if self._then.raises:
            how = f"level {self.config.level}, task {self.config.task}"
            lines.append(f"Dumped next, at {how}: {_steps(first.at, first.at + self._then.steps - 1)}.")
        notice("Probe: " + " ".join(line if line.endswith(".") else f"{line}." for line in lines))

    def _amend(self, triggers: Sequence[Trigger]) -> None:
        """Write triggers of one step into its report, and tell them."""
        self.tell(triggers)
        told = [each.told for each in triggers]
        for seen in self._recent:
            if seen.number == triggers[0].step:
                for directory in seen.directories:
                    with contextlib.suppress(OSError, FormatError):  # of a step that was broken off
                        amend_report(directory, lambda report: report.setdefault("triggers", []).extend(told))

    def _fail(self, error: Exception) -> None:
        text = f"when: {error_text(error)}. Conditions may be missed, here or on other ranks."
        self._notices.tell(text, "a fault")


def _on(rank: int | None) -> str:
    return "" if rank is None else f" on rank {rank}"


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"
