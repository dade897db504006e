"""What is left of a graph's taps where MindSpore does not compile them all."""

from __future__ import annotations

import pytest
from probe_mindspore.graph.search import Extent, UntappableError, search


class Compiler:
    """Says no as MindSpore does: to more taps than some."""

    def __init__(self, most: Extent, error: type[Exception] = RuntimeError) -> None:
        self.most, self.error = most, error
        self.met: dict[int, None] = {}
        self.extents: list[Extent] = []

    def __call__(self, extent: Extent) -> str:
        self.extents.append(extent)
        self.met |= dict.fromkeys((1, 2) if extent <= self.most else (1,))
        if extent > self.most:
            raise self.error(extent.name)
        return extent.name


@pytest.mark.parametrize("most", Extent)
def test_as_many_kinds_of_taps_as_compile(most: Extent) -> None:
    compiler = Compiler(most)
    found = search(compiler, compiler.met)
    assert (found.answer, found.extent) == (most.name, most) and found.met == {1, 2}
    assert compiler.extents == sorted(Extent, reverse=True)[: len(Extent) - most]
    assert (found.why is None) == (most is Extent.EVERYTHING)


def test_other_arguments_begin_with_what_was_found_and_say_the_same() -> None:
    compiler = Compiler(Extent.FORWARD)
    first = search(compiler, compiler.met)
    compiler.extents.clear()
    again = search(compiler, compiler.met, first)
    assert again == first and compiler.extents == [Extent.FORWARD]


def test_what_takes_no_taps_at_all_is_not_tried_again() -> None:
    compiler = Compiler(Extent.NOTHING, UntappableError)
    found = search(compiler, compiler.met)
    assert found.extent is Extent.NOTHING and compiler.extents == [Extent.EVERYTHING, Extent.NOTHING]


def test_the_user_s_own_error_is_the_one_that_is_raised() -> None:
    def wrong(extent: Extent) -> str:
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        search(wrong, {})
