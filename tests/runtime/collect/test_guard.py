"""Shelter a replacement of ours: its faults stay with us, and the original is called as the user called it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from probe_runtime.collect.guard import sheltered


def _sheltered(ours: Callable[[Any], Any]) -> tuple[Any, list[int]]:
    times = [0]

    def original(x: int) -> int:
        times[0] += 1
        if x == 0:
            raise KeyError("the user's")
        return x * 2

    return sheltered("here", ours)(original), times


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_original_is_called_once_whenever_ours_fails(when: str) -> None:
    def ours(original: Any) -> Any:
        def stand_in(x: int) -> int:
            if when == "before":
                raise ZeroDivisionError
            original(x)
            raise ZeroDivisionError

        return stand_in

    call, times = _sheltered(ours)
    assert call(4) == 8 and times == [1]


def test_what_the_user_raises_goes_through_and_is_raised_once() -> None:
    call, times = _sheltered(lambda original: lambda x: original(x))
    with pytest.raises(KeyError, match="user's"):
        call(0)
    assert times == [1]
    with ThreadPoolExecutor() as pool:
        assert pool.submit(call, 3).result() == 6


def test_ours_may_try_the_original_again_and_then_fail() -> None:
    def ours(original: Any) -> Any:
        def stand_in(x: int) -> int:
            try:
                original(0)
            except KeyError:
                raise ZeroDivisionError from None
            return 0

        return stand_in

    call, times = _sheltered(ours)
    assert call(4) == 8 and times == [2]
