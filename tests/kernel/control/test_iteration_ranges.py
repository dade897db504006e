"""Iterations as people write them, and as the dumper reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_kernel.control.iteration_ranges import Iterations, parse_iterations


def text(value: object) -> str:
    found, problems = parse_iterations(value, "iterations")
    assert not problems, problems
    return str(found)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("all", "all"),
        ("0|5-8|100-120", "0|5-8|100-120"),
        ("0 | 5-8 | 100-120", "0|5-8|100-120"),  # the document's own spelling, which MindSpore refuses
        (3, "3"),
        (range(2, 5), "2-4"),
        ([0, range(5, 9), "100-120"], "0|5-8|100-120"),
        ((7, 1, 2, 3), "1-3|7"),
        (range(0, 9, 4), "0|4|8"),
        ("3|1-2", "1-3"),
        ({4}, "4"),
    ],
)
def test_what_is_written(value: object, written: str) -> None:
    assert text(value) == written


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("3-1", 'Write "1-3"'),
        ("a-b", "neither a number nor a range"),
        ("", "empty part"),
        ("1||2", "empty part"),
        ("1,2", "Write"),
        ("0..4", 'Write "0-4"'),
        ("all|3", 'Write "all" alone'),
        (-1, "negative"),
        ("-1", "negative"),
        (range(-2, 3), "negative"),
        (True, "bool"),
        ([], "selects no iteration"),
        (range(0), "selects no iteration"),
        (1.5, "float"),
        (None, "NoneType"),
        (2**32, "beyond"),
        ("9" * 5000, "neither a number nor a range"),
    ],
)
def test_what_is_refused(value: object, says: str) -> None:
    _, problems = parse_iterations(value, "iterations")
    assert problems
    assert all(p.where == "iterations" for p in problems)
    if says == "Write":
        assert problems[0].remedy == 'Join with a bar: "1|2".'
    else:
        assert says in str(problems[0])


def test_every_problem_is_told() -> None:
    _, problems = parse_iterations(["3-1", "x", -2, 5], "iterations")
    assert len(problems) == 3


@given(st.sets(st.integers(0, 300), min_size=1))
def test_numbers_come_back(numbers: set[int]) -> None:
    found, problems = parse_iterations(sorted(numbers), "iterations")
    assert not problems
    assert {n for a, b in found.spans or () for n in range(a, b + 1)} == numbers
    assert parse_iterations(str(found), "iterations") == (found, ())


def test_all_holds_everything() -> None:
    assert Iterations().all
