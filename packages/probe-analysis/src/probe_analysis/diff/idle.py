"""Find the calls that only hand on memory which is written over before anything is computed with it."""

from __future__ import annotations

from collections.abc import Sequence

from probe_format.schema import Side, only_views, writes_into

from probe_analysis.align.alignment import Pair

_NUMBERS = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5", "nan_count", "finite_max", "finite_min")

Content = tuple[str, ...]


def idle_calls(pairs: Sequence[Pair]) -> frozenset[str]:
    """Return the names of the calls of the first run whose tensors differ only where they were not written to yet.

    A buffer of `torch.empty` is cut into views, and these are written over (FSDP). What it held differs in each run.

    pairs: in the order in which the first run completed them. Their records are read anew.
    """
    found: set[str] = set()
    gone: set[Content] = set()  # what differs between the runs, and is written over further on
    for pair in reversed(pairs):
        name = pair.a.name
        views = only_views(name)
        if not views and not writes_into(name, "input_args.0"):
            continue
        taken, given = _differing(pair, "in"), _differing(pair, "out")
        if views and given.keys() <= gone:
            found.add(name)
            gone |= taken.keys()
        elif not views and not given:
            gone |= {content for content, slot in taken.items() if writes_into(name, slot)}
    return frozenset(found)


def _differing(pair: Pair, side: Side) -> dict[Content, str]:
    """Return what differs on a side, as the runs have it -> its slot in the first."""
    both = pair.tensors(side)
    return {
        tuple(str(x.get(key)) for x in (one, two) for key in _NUMBERS): slot
        for slot, one, two in both
        if one != two
    }
