"""Alignment of two sequences, against the longest common subsequence found by the textbook's table."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from probe_analysis.align.sequence import aligned

letters = st.lists(st.sampled_from("abcd"), max_size=12)


def longest(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


@given(letters, letters)
def test_pairs_are_equal_and_keep_the_order(a: list[str], b: list[str]) -> None:
    pairs = sorted(aligned(a, b))
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in itertools.pairwise(pairs))


@given(letters, st.integers(0, 12), st.sampled_from("abcde"))
def test_what_is_inserted_shifts_nothing(a: list[str], at: int, new: str) -> None:
    b = [*a[:at], new, *a[at:]]
    assert len(list(aligned(a, b))) == len(a)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=40), st.data())
def test_sequences_without_repeats_are_aligned_as_far_as_possible(a: list[int], data: st.DataObject) -> None:
    b = data.draw(st.permutations(a))
    words = [list(map(str, each)) for each in (a, b)]
    assert len(list(aligned(*words))) == longest(*words)


def test_long_sequences_take_no_time() -> None:
    a = [f"{i % 7}-{i}" for i in range(100_000)]
    b = [*a[:5], "new", *a[5:60_000], *a[60_010:]]
    assert len(list(aligned(a, b))) == len(a) - 10
