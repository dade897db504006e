"""What `python -m bench` measures: the rows, in groups that can be chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import attrs
from attrs import evolve

from . import call_count, convert_cost, long_step, memory, save_cost, stats_cost, steps
from .parts import PARTS, SAVE_PARTS, TENSOR_PARTS
from .steps import MANY, MEMORY, Case, cpu_count
from .turns import Answer

__all__ = ["GROUPS", "How"]

_EVERYONE = ("slow", "msprobe", "debug", "hooks")
_LEVELS = ("L0", "L1", "mix")
#: What Probe's overhead may be of msprobe's, statistics of models that are bound by Python's dispatch.
_SMALL = {"L0": 0.25, "L1": 0.22, "mix": 0.2}
_ROUNDS = {"small": 9, "small Llama": 7, "small ResNet": 7, "6x512": 5}
STATISTICS = tuple(
    Case(
        setup,
        level,
        peers=_EVERYONE if (setup, level) == ("small", "L0") else ("slow", "msprobe"),
        goal=_SMALL[level] if setup.startswith("small") else 0.2,
        rounds=_ROUNDS.get(setup, 3),
    )
    for setup in (
        "small", "small Llama", "small ResNet", "6x512", "6x512, one thread", "6x512 Llama", "ResNet-18"
    )
    for level in _LEVELS
)  # fmt: skip
#: On all threads of a machine that has many.
THREADS = tuple(
    Case("6x512, all threads", level, peers=("msprobe",), goal=0.5, rounds=5) for level in _LEVELS
)
MD5 = tuple(
    Case(
        setup,
        "mix",
        section='{"summary_mode": "md5"}',
        peers=("msprobe",),
        goal=1 / 4,
        label="md5",
        rounds=rounds,
    )
    for setup, rounds in (("small", 9), ("6x512", 3))
)
TENSORS = tuple(
    Case(setup, level, "tensor", place, peers=("packed", "msprobe"), goal=1 / 10 if place else None, rounds=rounds)
    for place in (MEMORY, "") for setup, rounds in (("small", 7), ("6x256", 3)) for level in ("mix", "L1")
)  # fmt: skip
#: What the dumps that miss a goal take without one of their parts.
_LESS = tuple(f"without {name}" for name in PARTS)
PARTED = tuple(
    evolve(case, peers=(*_LESS, "msprobe"), rounds=25)
    for case in STATISTICS
    if case.setup == "small" or (case.level == "L0" and case.setup.startswith("small"))
)
PARTED_LARGE = tuple(
    evolve(case, peers=("without numbers", "without calls", "msprobe"), rounds=15)
    for case in STATISTICS
    if case.level in ("L0", "L1") and case.setup in ("6x512", "ResNet-18")
)
PARTED_TENSORS = tuple(
    evolve(
        case,
        peers=(*(f"without {name}" for name in TENSOR_PARTS), "packed", "msprobe"),
        rounds=9 if case.setup == "small" else 3,
    )
    for case in TENSORS
)
#: What one can afford at every step.
CHEAP = tuple(
    Case(setup, level, section=section, peers=(), label=label, rounds=9 if setup == "small" else 5)
    for setup in ("small", "6x512")
    for level, label, section in (
        ("L0", "two modules", '{"list": ["Module.blocks.0.norm1.LayerNorm", "Module.head.Linear"]}'),
        ("L0", "scope of a block",
         '{"scope": ["Module.blocks.2.Block.forward.0", "Module.blocks.2.Block.forward.0"]}'),
        ("L0", "outputs", '{"data_mode": ["output"]}'),
        ("L1", "outputs", '{"data_mode": ["output"]}'),
    )
)  # fmt: skip


@attrs.frozen
class How:
    """How to measure.

    rounds: of each case; 0 for each one's own number.
    quick: the small model only, and as little as shows that it works.
    """

    msprobe: str = ""
    disk: str = ""
    rounds: int = 0
    quick: bool = False

    def of(self, rounds: int) -> int:
        """Return the rounds of a case with so many of its own."""
        return self.rounds or (1 if self.quick else rounds)


def _cases(cases: tuple[Case, ...]) -> Callable[[How], Iterator[Answer]]:
    def run(how: How) -> Iterator[Answer]:
        with ExitStack() as end:
            for case in cases:
                if (how.quick and case.setup != "small") or (case in THREADS and cpu_count() < MANY):
                    continue
                yield steps.measure(case, how.msprobe, how.of(case.rounds), how.disk, end)

    return run


def _calls(how: How) -> Iterator[Answer]:
    for case in call_count.CASES:
        for answer in call_count.measure(how.msprobe, [case]):
            yield {"name": f"{answer['tool']} {' '.join(case)}", **answer}


def _calls_without(how: How) -> Iterator[Answer]:
    for answer in call_count.without(
        [name for name in PARTS if name not in ("events", "calls")]
    ):  # they need records
        yield {"name": " ".join((answer["tool"], answer["level"], answer["task"])), **answer}


def _read(how: How) -> Iterator[Answer]:
    yield {"name": "256 MB of float32", **stats_cost.over_a_read(0.2 if how.quick else 2.0)}


def _idle(how: How) -> Iterator[Answer]:
    yield steps.idle(how.of(60))


def _memory(how: How) -> Iterator[Answer]:
    yield from map(memory.measure, memory.CASES[:1] if how.quick else memory.CASES)


def _growth(how: How) -> Iterator[Answer]:
    for count in (10**3, 10**4) if how.quick else (10**3, 10**4, 10**5, 10**6):
        yield {"name": f"{count:,} records", **long_step.measure(count)}


def _save(how: How) -> Iterator[Answer]:
    yield from save_cost.measure(how.of(15), MEMORY)


def _save_without(how: How) -> Iterator[Answer]:
    yield from save_cost.without(["", *SAVE_PARTS], how.of(15), MEMORY)


def _convert(how: How) -> Iterator[Answer]:
    yield convert_cost.measure(how.of(3), how.disk)


GROUPS: dict[str, Callable[[How], Iterator[Answer]]] = {
    "calls": _calls,
    "calls without": _calls_without,
    "statistics": _cases(STATISTICS),
    "threads": _cases(THREADS),
    "md5": _cases(MD5),
    "tensor": _cases(TENSORS),
    "parts": _cases(PARTED),
    "parts large": _cases(PARTED_LARGE),
    "parts tensors": _cases(PARTED_TENSORS),
    "cheap": _cases(CHEAP),
    "read": _read,
    "idle": _idle,
    "memory": _memory,
    "growth": _growth,
    "save": _save,
    "save without": _save_without,
    "convert": _convert,
}
"""Name of a group -> what yields its answers; each has a name, and the numbers by name."""
