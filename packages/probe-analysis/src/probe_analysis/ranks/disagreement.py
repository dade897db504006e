"""Define a disagreement, ranks that should agree on something and do not, with the reasons why they should.

Of what the optimizers of replicas get, it also tells on which ranks that is their own gradient, not a reduced one.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import frozen

from probe_analysis.calls.run import AtCall, Call

from .held import Held, Parting, all_of, lowest, ranks_in

#: Why ranks should agree on something.
Reason = Literal[
    "call", "weight", "update", "argument", "buffer", "constant", "collective", "placement", "form", "computed", "asked"
]  # fmt: skip

WHY: Mapping[Reason, str] = {
    "call": "collective calls, and the modules and gradients of replicas: every rank must make them",
    "weight": "weights of replicas: all begin alike and get the same updates",
    "update": "what the optimizer, or the clipping of gradients, of replicas works with: gradients are reduced by then",
    "argument": "numbers, flags and texts that replicas give to functions, train or eval mode among them",
    "buffer": "running statistics of batch norms, unless each replica keeps its own",
    "constant": "tensors that no record has made, and that are the same in each step: buffers, tables",
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


def odd_of(groups: Sequence[int]) -> int:
    """Return the ranks that stand against a majority; none where no group is larger than every other."""
    if len(groups) > 1 and groups[0].bit_count() > groups[1].bit_count():
        return all_of(groups[1:])
    return 0


def unreduced(held: Held, own: Mapping[str, int], of_shape: Sequence[str]) -> tuple[int, str]:
    """Return the ranks that use their own gradient where others do not, and a sentence on whose gradient it is.

    held: what the optimizers got.
    own: parameter -> the ranks that got what their own backward pass left in its gradient.
    of_shape: the gradients that have the shape of what they got.
    """
    everyone = all_of(held)
    own = {name: some for name, bits in own.items() if (some := bits & everyone)}
    if not own:
        return 0, f"By its shape it belongs to {of_shape[0]}" if len(of_shape) == 1 else ""
    ranks, name = all_of(own.values()), min(own, key=lambda each: lowest(own[each]))
    if ranks == everyone:
        return 0, f"On every rank it is what its own backward pass left in {name}: nothing was reduced"
    left = f"On {ranks_text(ranks_in(ranks))} it is what its own backward pass left in {name}"
    return ranks, f"{left}: it was not reduced there"
