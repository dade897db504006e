"""Divide ranks by what they hold, and say in words where those that should agree do not."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from attrs import frozen
from probe_format.statistics import WHOLE

from probe_analysis.calls.run import AtCall, Call, Run
from probe_analysis.compare.distance import distance

#: Rank -> a tensor of it.
Held = Mapping[int, Mapping[str, Any]]
#: Ranks by what they hold: the largest group first, of equal ones that with the lowest rank.
Parting = tuple[tuple[int, ...], ...]


def mark(tensor: Mapping[str, Any]) -> Hashable:
    """Return what tells a tensor's contents apart: its checksum, else its statistics; None when it has neither."""
    shape = str(tensor["shape"])
    if isinstance(tensor.get("md5"), str):
        return shape, tensor["dtype"], tensor["md5"]
    numbers = tuple(tensor.get(key) for key in WHOLE)
    if numbers[0] is None and numbers[3] is None:
        return None
    return shape, tensor["dtype"], *numbers


def parted(tensors: Held, tolerance: float = 0.0, key: Callable[..., Hashable] = mark) -> Parting:
    """Return which ranks hold the same tensor.

    tensors: rank -> its tensor; one without numbers is left out.
    tolerance: the relative difference up to which two are the same.
    """
    groups: list[tuple[Hashable, int, list[int]]] = []
    for rank, tensor in tensors.items():
        own = key(tensor)
        if own is None:
            continue
        for other, first, members in groups:
            if own == other or (tolerance and distance(tensors[first], tensor).relative <= tolerance):
                members.append(rank)
                break
        else:
            groups.append((own, rank, [rank]))
    return tuple(sorted((tuple(members) for _, _, members in groups), key=lambda m: (-len(m), m)))


def trusted(tensor: Mapping[str, Any]) -> bool:
    """Return whether equal marks mean equal contents.

    Statistics of flags, classes and indices are the same for many orders of them, those of measured numbers are not.
    """
    if isinstance(tensor.get("md5"), str):
        return True
    high, low = tensor.get("Max"), tensor.get("Min")
    both = type(high) is float and type(low) is float
    return both and tensor["shape"] != [] and not (float(high).is_integer() and float(low).is_integer())  # type: ignore[arg-type]


#: Why ranks should agree on something.
Reason = Literal["call", "weight", "update", "collective", "placement", "form", "computed", "asked"]

WHY: Mapping[Reason, str] = {
    "call": "collective calls, and the modules of replicas: every rank must make them, or the others wait for it",
    "weight": "weights of replicas: all begin alike and get the same updates",
    "update": "what the optimizer, or the clipping of gradients, of replicas works with: gradients are reduced by then",
    "collective": "results of all_reduce, broadcast and all_gather: the same on each rank of the group",
    "placement": "DTensors, on ranks that hold the same part: their placement says so",
    "form": "dtype, whole shape and placement of a DTensor: the same on each rank of its mesh",
    "computed": "what a function returns for arguments that agree",
    "asked": "what was asked for with --agree",
}
"""Reason -> which things it holds for, in words."""


@frozen(eq=False)
class Disagreement(AtCall):
    """Hold a place where ranks should agree and do not.

    step: ``step0``.
    call: the call, in the first of the ranks that makes it.
    slot: the tensor's place in its record; empty where the call itself is missing on some ranks.
    parting: the ranks by what they hold, the largest group first; of a missing call those that make it, then the rest.
    odd: the ranks that stand against a majority; empty where there is none, as with two ranks.
    detail: what differs, in few words; empty where the call itself is missing.
    """

    step: str
    call: Call
    slot: str
    reason: Reason
    parting: Parting
    odd: tuple[int, ...]
    detail: str
    sentence: str


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Return ``rank 1``, or ``ranks 0, 2, 3``; of many the first few."""
    shown = ", ".join(map(str, ranks[:8])) + (f", ... ({len(ranks)} in all)" if len(ranks) > 8 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def odd_of(parting: Parting) -> tuple[int, ...]:
    """Return the ranks that stand against a majority; empty where no group is larger than every other."""
    if len(parting) > 1 and len(parting[0]) > len(parting[1]):
        return tuple(sorted(rank for group in parting[1:] for rank in group))
    return ()


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
