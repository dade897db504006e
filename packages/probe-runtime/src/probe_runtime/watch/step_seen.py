"""Hold what is known of a step that has ended, by which the conditions of the key `when` are judged.

These are the values that the user observed, the norms of gradients, where the step stops being finite, and whether a
loss scaler skipped its update. `when` is a key of the configuration: the steps around one that meets any of its
conditions are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from probe_format.names import ParamsGradName, parsed
from probe_format.schema import may_begin
from probe_format.write import Look

if TYPE_CHECKING:
    from probe_format.read import Origin

    from .row import WatchedRow


@frozen(slots=False, eq=False)
class StepSeen:
    """What is known of a step that has ended. A function under `when` is called with one.

    number: of the step.
    rank: of this process; None where the run is not distributed.
    values: name -> what `debugger.observe` was given last in this step.
    report: the step's report.json; None where it was not dumped.
    """

    number: int
    rank: int | None
    values: Mapping[str, float] = field(factory=dict)
    report: Mapping[str, Any] | None = None
    _looks: Mapping[Path, Look] = field(factory=dict, repr=False)
    _skips: Sequence[Callable[[], bool]] = field(default=(), repr=False)
    _row: WatchedRow | None = field(default=None, repr=False)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return this rank's folders of the dumped step: one, or two where MindSpore ran in both modes."""
        return tuple(self._looks)

    @cached_property
    def update_was_skipped(self) -> bool:
        """Return whether a loss scaler skipped an update because of an overflow."""
        return any(skipped() for skipped in self._skips)

    @cached_property
    def origin(self) -> Origin | None:
        """Return where the step stops being finite, as `probe nan` finds it; None where it does not."""
        for directory, look in self._looks.items():
            # Most steps end here: all is finite, or the infinities of a mask.
            if may_begin(look.suspects):
                from probe_format.read import Rank, origins  # only a bad step needs the reader

                for found in origins(Rank(directory, self.rank, self.number), look.suspects):
                    return found
        return None

    @property
    def part(self) -> str:
        """Return the part in which the step stops being finite: forward, backward or gradients; empty if in none."""
        name = "" if self.origin is None else self.origin.name
        form = parsed(name)
        return "gradients" if isinstance(form, ParamsGradName) else getattr(form, "direction", "")

    def not_finite(self, part: str) -> str | None:
        """Return in words where the step stops being finite; None where it does not, or a loss scaler has seen to it.

        part: forward, backward or gradients; empty for all.
        """
        if self._row is not None:
            found = self._row.not_finite(part)
            if found is None or part == "forward" or not self.update_was_skipped:
                return found
            return None if part else self._row.not_finite("forward")
        if self.origin is None or (part and part != self.part):
            return None
        if self.part != "forward" and self.update_was_skipped:
            return None
        return self.origin.sentence

    def gradients(self, moment: str) -> list[float]:
        """Return the norms of the gradients of parameters. moment: ``parameters_grad`` or ``optimizer_grad``."""
        if self._row is not None:
            return self._row.norms("gradients")
        return [norm for look in self._looks.values() for norm in look.norms.get(moment, {}).values()]

    @staticmethod
    def sentence(steps: Iterable[StepSeen]) -> str:
        """Return what `probe nan` says of these steps."""
        steps = [*steps]
        for step in steps:
            if step.origin is not None:
                return f"in step {step.number}, {step.origin.sentence}"
        from probe_format.read import none_begins

        looks = [look for step in steps for look in step._looks.values()]
        return none_begins(
            sum(look.records for look in looks),
            sum(look.known for look in looks),
            sum(len(look.suspects) for look in looks),
            lost=any(look.lost for look in looks),
        )
