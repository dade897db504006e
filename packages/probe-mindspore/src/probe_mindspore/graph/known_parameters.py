"""Find out which parameters the gradients in a graph belong to, while the graph is compiled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field
from mindspore import Parameter, nn
from probe_format.excerpts import unsignalled


@define(eq=False)
class KnownParameters:
    """Find out whose gradients the operations in a graph return, while it is compiled.

    keys: id of each parameter to record -> its number.
    unknown: called for an operation whose parameters cannot be identified.
    lists: ids -> each list of parameters that the source has a name for.
    near: for each operation, the parameters in its own namespace under the name that MindSpore's code uses.
    """

    keys: Mapping[int, int]
    unknown: Callable[[], None]
    lists: dict[tuple[int, ...], tuple[Any, ...]] = field(factory=dict)
    near: list[tuple[Any, ...]] = field(factory=list)

    def number(self, namespace: Any) -> int:
        """Return a number for an operation found in this namespace."""
        try:
            found = namespace["weights"]
        except unsignalled(Exception):  # the namespace raises where there is none
            found = ()
        self.near.append(_parameters(found))
        return len(self.near) - 1

    def meet(self, value: Any) -> None:
        """Add the lists of parameters in the value of a name in the source."""
        for one in vars(value).values() if isinstance(value, nn.Cell) else (value,):
            found = _parameters(one)
            if any(id(p) in self.keys for p in found):
                self.lists[tuple(map(id, found))] = found

    def found(self, number: int, shapes: Sequence[Sequence[int]], dtypes: Sequence[Any]) -> tuple[int, ...]:
        """Return the numbers of the parameters whose gradients have these shapes; 0 for one that is not recorded."""
        wanted = [(tuple(s), str(d)) for s, d in zip(shapes, dtypes, strict=True)]
        near = self.near[number] if number >= 0 else ()
        fitting = [
            found
            for found in (near, *self.lists.values())
            if [(tuple(p.shape), str(p.dtype)) for p in found] == wanted
        ]
        if not fitting or (fitting[0] is not near and len(fitting) > 1):
            self.unknown()
            return (0,) * len(wanted)
        return tuple(self.keys.get(id(p), 0) for p in fitting[0])


def _parameters(value: Any) -> tuple[Any, ...]:
    """Return the parameters in a list that holds nothing else; () for any other value."""
    found = (value,) if isinstance(value, Parameter) else value
    if not isinstance(found, (tuple, list)):
        return ()
    return tuple(found) if all(isinstance(p, Parameter) for p in found) else ()
