"""What is left of a graph's taps where MindSpore does not compile them all."""

from __future__ import annotations

from typing import Any

import pytest
from probe_mindspore.graph.search import Extent, Search, SearchResult


class Compiler:
    """Says no as MindSpore does: to taps of some Cells, when it comes to them or, for gradients, at the end."""

    def __init__(
        self, cells: int, forward: tuple[int, ...], gradients: tuple[int, ...], weights: bool
    ) -> None:
        self.cells = tuple(range(cells))
        self.no_forward, self.no_gradients, self.no_weights = set(forward), set(gradients), weights
        self.met: dict[int, None] = {}
        self.extents: list[Extent] = []
        self.last: Extent | None = None  # what a run of the graph would have

    def tapped(self, extent: Extent) -> str:
        self.extents.append(extent)
        self.last = None
        for cell in self.cells:
            self.met[cell] = None
            if cell in extent.forward & self.no_forward:
                raise TypeError(f"not {cell}")
        if extent.gradients & self.no_gradients or (extent.weights and self.no_weights):
            raise RuntimeError("not the gradients")
        self.last = extent
        return "with taps"

    def plain(self) -> str:
        self.last = Extent(frozenset(), frozenset(), False)
        return "as it is"

    def found(self) -> SearchResult:
        return Search(self.cells, self.tapped, self.plain, self.met).run()


@pytest.mark.parametrize(
    ("forward", "gradients", "weights", "attempts"),
    [
        ((), (), False, 1),
        ((3,), (), False, 5),
        ((), (3,), False, 9),
        ((), (), True, 4),
        ((0, 5), (2,), True, 9),
    ],
)
def test_the_last_thing_compiled_is_what_is_said_and_no_more_is_left_out_than_must_be(
    forward: tuple[int, ...], gradients: tuple[int, ...], weights: bool, attempts: int
) -> None:
    compiler = Compiler(6, forward, gradients, weights)
    found = compiler.found()
    assert found.extent == compiler.last and len(compiler.extents) <= attempts
    assert not found.extent.forward & set(forward) and not found.extent.gradients & set(gradients)
    left_out = {cell for side, cell in found.why if side == "forward"}
    assert left_out == set(compiler.cells) - found.extent.forward
    if len(forward) < 2:
        assert left_out == set(forward)
        assert found.extent.weights is not weights
    if not forward:
        without = {cell for side, cell in found.why if side == "gradients"}
        assert without == set(compiler.cells) - found.extent.gradients == set(gradients)


def test_where_nothing_compiles_the_user_s_own_does() -> None:
    compiler = Compiler(6, tuple(range(6)), (), False)
    found = compiler.found()
    assert found.answer == "as it is" and not found.extent.forward
    assert len(compiler.extents) <= 4


def test_the_user_s_own_error_is_the_one_that_is_raised() -> None:
    def wrong(extent: Any = None) -> str:
        raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        Search((1, 2, 3), wrong, wrong, {}).run()
