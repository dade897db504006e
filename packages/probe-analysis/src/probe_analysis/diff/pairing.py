"""Hold two runs that are compared, and the options of the comparison; read and align them when that is asked for.

Where one program was run twice, this also tells how far apart noise alone takes the values of each record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from attrs import frozen

from probe_analysis.align.alignment import Alignment, align
from probe_analysis.align.mapping import Mapping as Names
from probe_analysis.calls.compact_run import CompactRun, Shared
from probe_analysis.calls.run import Run
from probe_analysis.compare.estimates import SIDES

from .call_diff import Comparison


@frozen
class Options:
    """Hold how runs are compared. mapping, tolerance, load, rows: as in the function `diff`."""

    mapping: Names | None = None
    tolerance: float | None = None
    load: bool = True
    rows: bool = False


@frozen(eq=False)
class Aligned:
    """Hold two runs that were read, and which of their calls belong together.

    floors: record -> the level of difference that noise makes in it.
    """

    a: CompactRun
    b: CompactRun
    alignment: Alignment
    floors: Mapping[str, float]


@frozen(slots=False, eq=False)
class Pairing:
    """Hold two runs of the same step and rank.

    noise: a repeated run of the first run's program.
    """

    a: Run
    b: Run
    options: Options
    noise: Run | None = None

    @property
    def label(self) -> str:
        return self.a.label

    @cached_property
    def aligned(self) -> Aligned:
        """Return the runs, read and aligned. Raises FormatError where they cannot be read."""
        shared = Shared.kept()
        a, b = CompactRun.of(self.a, shared), CompactRun.of(self.b, shared)
        third = None if self.noise is None else CompactRun.of(self.noise, shared)
        floors = {} if third is None else _noise(Comparison(a, third, self.options.load))
        return Aligned(a, b, align(a, b, self.options.mapping), floors)

    def forget(self) -> None:
        """Let go of what was read. It is read again when it is asked for."""
        vars(self).pop("aligned", None)
        for run in (self.a, self.b, self.noise):
            if run is not None:
                run.forget()


def _noise(twice: Comparison) -> dict[str, float]:
    """Return record -> the level at which two runs of the same program differ in it."""
    found = {}
    for each in [*twice.each(align(twice.a, twice.b).pairs)]:
        apart = (level.largest for _, level in each.levels(*SIDES))
        found[each.pair.a.name] = max((level for level in apart if level < math.inf), default=0.0)
    return found
