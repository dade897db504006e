"""Match the files of kernels with the operators of the graph.

Usually both have the same name. Where MindSpore's backend replaced an operator by a new node, the number at the end
differs: the files have ``Default_Cast-op0``, graph and execution order ``Default/Cast-op3`` (measured, 2.7 to 2.10).
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from attrs import frozen
from probe_format.errors import FormatError

from probe_kernel.files.dtypes import dtype_of
from probe_kernel.graph.model import Operator, Type
from probe_kernel.read.file_name import flat, without_number
from probe_kernel.read.kernel import Kernel

How = Literal["name", "last part", "order"]
"""What the files were matched by.

name: the full name.
last part: files that have only the end of it (MindSpore 1.5).
order: the same name but for the number, types that fit, and the same place among the kernels that fit.
"""


@frozen
class Match:
    """Pair an operator with the name that its files have.

    how: what they were matched by.
    cautions: what in the files contradicts the graph (another dtype, another spelling of the type), in sentences; then
    only the name supports the match.
    """

    operator: Operator
    name: str
    how: How
    cautions: tuple[str, ...] = ()


def stem(name: str) -> str:
    return without_number(flat(name))


def match(
    operators: Iterable[Operator], kernels: Iterable[Kernel], order: Sequence[str] = ()
) -> Mapping[str, Match]:
    """Return the operator of each kernel, by the name in the files. Kernels that fit several operators are left out.

    order: the full names of the nodes in the order in which they run, if known.
    """
    firsts: dict[str, Kernel] = {}
    for kernel in kernels:
        if not kernel.is_parameter:
            firsts.setdefault(kernel.name, kernel)
    found: dict[str, Match] = {}
    named = [op for op in operators if op.full_name]
    _by_name(found, named, firsts, cautious=False)
    taken = {id(match.operator) for match in found.values()}
    rest = [kernel for name, kernel in firsts.items() if name not in found]
    found.update(_by_order([op for op in named if op.is_kernel and id(op) not in taken], rest, order))
    # Last, so that a node with another number but the right types comes before one with the name alone.
    _by_name(found, named, firsts, cautious=True)
    return found


def _by_name(
    found: dict[str, Match], operators: Iterable[Operator], kernels: Mapping[str, Kernel], *, cautious: bool
) -> None:
    """Add to ``found`` the kernels whose name exactly one operator has, whole or at its end.

    cautious: whether to accept kernels that contradict the operator in anything but their sizes.
    """
    ways: tuple[tuple[How, Callable[[str], str]], ...] = (
        ("name", flat), ("last part", lambda name: flat(name.rpartition("/")[2])),
    )  # fmt: skip
    for how, key in ways:
        taken = {id(match.operator) for match in found.values()}
        by_key: dict[str, list[Operator]] = {}
        for op in operators:
            if id(op) not in taken:
                by_key.setdefault(key(op.full_name), []).append(op)
        for name, kernel in kernels.items():
            same = by_key.get(name, ())
            if name not in found and len(same) == 1:
                against = list(_contradictions(same[0], kernel))
                if not against or (cautious and all(kind != "elements" for kind, _ in against)):
                    found[name] = Match(same[0], name, how, tuple(text for _, text in against))


def _by_order(operators: list[Operator], kernels: list[Kernel], order: Sequence[str]) -> dict[str, Match]:
    place = {name: at for at, name in enumerate(order)}
    found: dict[str, Match] = {}
    groups: dict[str, list[Operator]] = {}
    for op in sorted(operators, key=lambda op: place.get(op.full_name, op.line + len(place))):
        groups.setdefault(stem(op.full_name), []).append(op)
    stems: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        stems.setdefault(stem(kernel.name), []).append(kernel)
    for key, candidates in groups.items():
        # Where as many kernels as operators fit each other, the n-th kernel is the n-th operator.
        alike: dict[tuple[int, ...], list[Kernel]] = {}
        for kernel in stems.get(key, ()):
            fitting = tuple(at for at, op in enumerate(candidates) if agrees(op, kernel))
            alike.setdefault(fitting, []).append(kernel)
        for places, same in alike.items():
            if len(same) == len(places):
                for kernel, at in zip(sorted(same, key=lambda k: k.timestamp), places, strict=True):
                    found[kernel.name] = Match(candidates[at], kernel.name, "order")
    return found


def agrees(operator: Operator, kernel: Kernel) -> bool:
    """Return whether dtypes and numbers of elements allow that the kernel's tensors are the operator's."""
    return next(_contradictions(operator, kernel), None) is None


def _contradictions(operator: Operator, kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Yield each fact against the match: what contradicts (type, dtype or elements), and a sentence."""
    if operator.op != kernel.op_type and stem(operator.full_name) != stem(kernel.name):
        yield "type", f"the files call its type {kernel.op_type}, and the graph calls it {operator.op}"
    for slot in kernel.slots:
        of = (getattr(operator, f"device_{slot.io}s"), getattr(operator, f"{slot.io}s"))
        sides = [side[slot.index] for side in of if slot.index < len(side)]
        try:
            dtype, shape = slot.dtype, slot.shape
        except (FormatError, OSError):
            continue
        if not sides or any(_fits(side, dtype, shape) for side in sides):
            continue
        there = " or ".join(dict.fromkeys(side.dtype or side.text for side in sides))
        if any(_same_size(side, shape) for side in sides):
            yield "dtype", f"{slot} is {dtype} in its file, and {there} in the graph"
        else:
            shapes = " or ".join(dict.fromkeys(str(list(side.shape or ())) for side in sides))
            text = f"{slot} is {dtype}{list(shape or ())} in its file, and {there} {shapes} in the graph"
            yield "elements", text


def _fits(side: Type, dtype: str, shape: tuple[int, ...] | None) -> bool:
    with contextlib.suppress(FormatError):  # an unknown name contradicts nothing
        if side.dtype and dtype and dtype_of(side.dtype) != dtype_of(dtype):
            return False
    return _same_size(side, shape)


def _same_size(side: Type, shape: tuple[int, ...] | None) -> bool:
    if side.shape is None or shape is None or -1 in side.shape:
        return True
    # Shapes are not compared: after a Reshape that shares the memory, files have the shape before it.
    return math.prod(side.shape) == math.prod(shape)
