"""Recognise a gradient that a rank uses as its own backward pass left it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any

from attrs import frozen

from probe_analysis.calls.run import Run

from .disagreement import mark, ranks_text, trusted


@frozen(slots=False, eq=False)
class Local:
    """Give the gradients of parameters as the backward pass of one rank left them, before any reduction."""

    run: Run

    def _gradients(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for call in self.run.calls:
            if call.kind == "parameters_grad":
                yield from ((f"{call.name}.{v.slot}", v.tensor) for v in self.run.read(call).values)

    @cached_property
    def names(self) -> dict[Hashable, str]:
        """Return what tells each gradient apart -> its name."""
        found: dict[Hashable, str] = {}
        for name, tensor in self._gradients():
            if trusted(tensor):
                found.setdefault(mark(tensor), name)
        return found

    @cached_property
    def shapes(self) -> dict[str, list[str]]:
        """Return the shape of gradients -> the names of those that have it."""
        found: dict[str, list[str]] = {}
        for name, tensor in self._gradients():
            found.setdefault(str(tensor["shape"]), []).append(name)
        return found


def unreduced(tensors: Mapping[int, tuple[Local, Mapping[str, Any]]]) -> tuple[tuple[int, ...], str]:
    """Return the ranks that use their own gradient where others do not, and a sentence on whose gradient it is.

    tensors: rank -> its own gradients, and the tensor that its optimizer got.
    """
    own = {rank: name for rank, (local, tensor) in tensors.items() if (name := local.names.get(mark(tensor)))}
    if not own:
        local, tensor = next(iter(tensors.values()))
        same = local.shapes.get(str(tensor["shape"]), [])
        return (), f"By its shape it belongs to {same[0]}" if len(same) == 1 else ""
    ranks = tuple(own)
    name = next(iter(own.values()))
    if len(own) == len(tensors):
        return (), f"On every rank it is what its own backward pass left in {name}: nothing was reduced"
    left = f"On {ranks_text(ranks)} it is what its own backward pass left in {name}"
    return ranks, f"{left}: it was not reduced there"
