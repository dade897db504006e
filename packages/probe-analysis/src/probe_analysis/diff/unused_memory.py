"""Find calls whose tensors differ between two runs only in memory that is written over before it is used.

What such memory (of `torch.empty`) held makes no difference.
"""

from collections.abc import Sequence

from probe_format.schema import Side, only_views, writes_into
from probe_format.statistics import KEYS

from probe_analysis.align.alignment import Pair

from .call_diff import Comparison

#: What tells tensors apart.
_TELLING = ("dtype", "shape", *KEYS, "md5")

Marks = tuple[str, ...]


def _marks(how: Comparison, pair: Pair, side: Side) -> dict[str, Marks]:
    """Return slot -> what tells a tensor from others in either run, for tensors of both calls that differ."""
    both = (each for each in how.tensors(pair, side) if each[1] != each[2])
    return {slot: tuple(str(x.get(key)) for x in (one, two) for key in _TELLING) for slot, one, two in both}


def idle_calls(how: Comparison, pairs: Sequence[Pair]) -> frozenset[str]:
    """Return the names of the calls of the first run whose tensors differ only where they were not written to yet.

    A buffer of `torch.empty` is cut into views, and these are written over (FSDP). What it held differs in each run.

    pairs: in the order in which the first run completed them.
    """
    found: set[str] = set()
    gone: set[Marks] = set()  # what differs between the runs, and is written over further on
    for pair in reversed(pairs):
        name = pair.a.name
        views = only_views(name)
        if not views and not writes_into(name, "input_args.0"):
            continue
        taken, given = _marks(how, pair, "in"), _marks(how, pair, "out")
        if views and gone.issuperset(given.values()):
            found.add(name)
            gone.update(taken.values())
        elif not views and not given:
            gone |= {marks for slot, marks in taken.items() if writes_into(name, slot)}
    return frozenset(found)
