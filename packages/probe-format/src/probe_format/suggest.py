"""Find the names nearest to one that does not exist, for messages."""

from collections import Counter
from collections.abc import Iterable
from heapq import nlargest

# difflib compares two names in about 20 us: 10,000 names would take 0.2 s for each wrong one. Counting
# common letter pairs is enough to pick the few that are worth the comparison.
_SHORTLIST = 40
_LONGEST = 400  # the time of a comparison grows with the square of the length


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)} or {text}


def nearest(word: str, candidates: Iterable[str], count: int = 3, cutoff: float = 0.6) -> tuple[str, ...]:
    """Return at most ``count`` ``candidates`` that look like ``word``, best first, whatever their case.

    cutoff: from 0 (anything) to 1 (equal but for case), as in difflib.
    """
    if len(word) > _LONGEST:
        return ()
    from difflib import SequenceMatcher  # here, as it takes 1-2 ms and only messages need it

    lower = word.lower()
    pairs = _pairs(lower)

    def overlap(candidate: str) -> float:
        theirs = _pairs(candidate.lower())
        return 2 * len(pairs & theirs) / (len(pairs) + len(theirs))

    short = nlargest(_SHORTLIST, dict.fromkeys(candidates), key=overlap)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(lower)
    scored = []
    for candidate in short:
        matcher.set_seq1(candidate.lower())
        if (score := matcher.ratio()) >= cutoff:
            scored.append((score, candidate))
    # The sort is stable: of two equally near, the first one comes first.
    return tuple(c for _, c in sorted(scored, key=lambda pair: -pair[0])[:count])


def nearest_names(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the record names, or parts of record names, nearest to a filter that matched nothing.

    A pattern without a dot (``"lineer"``) is compared with the parts of the names (``"linear"``), the
    commonest part first where several are equally near; one with a dot with the whole names.
    """
    if "." in pattern:
        return nearest(pattern, names, cutoff=0.5)
    parts: Counter[str] = Counter()
    for name in names:
        parts.update({part for part in name.split(".") if not part.isdigit()})
    return nearest(pattern, (part for part, _ in parts.most_common()))


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return ``"Did you mean 'a' or 'b'?"``, or the empty string where nothing is near."""
    found = nearest(word, candidates)
    return f"Did you mean {' or '.join(repr(f) for f in found)}?" if found else ""
