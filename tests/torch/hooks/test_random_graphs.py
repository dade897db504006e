"""Backward records of random programs against the truth: what autograd itself gives for each call on a copy."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attrs import define, field, frozen
from dumping import Json, agrees, capture
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor


@frozen
class Op:
    """A function that is recorded.

    arguments: takes as many tensors of 3 x 3 as there are `inputs`, and returns the arguments.
    free: whether its inputs and its output may be written afterwards: it saves none of them and returns no view.
    writes: whether it writes its first input.
    """

    function: Callable[..., Any]
    inputs: int
    arguments: Callable[..., tuple[Any, ...]] = lambda *given: given
    free: bool = False
    writes: bool = False


# Each is looked up when it is called, as in a user's file: Probe has replaced it then.
OPS = {
    "Torch.add": Op(lambda *a: torch.add(*a), 2, free=True),
    "Torch.mul": Op(lambda *a: torch.mul(*a), 2),
    "Torch.sin": Op(lambda *a: torch.sin(*a), 1),
    "Torch.matmul": Op(lambda *a: torch.matmul(*a), 2),
    "Torch.lerp": Op(lambda *a: torch.lerp(*a), 3),
    "Torch.cat": Op(lambda *a: torch.cat(*a), 3, lambda a, b, c: ([a, b, c], 1), free=True),
    "Torch.stack": Op(lambda *a: torch.stack(*a), 2, lambda a, b: ([a, b],), free=True),
    "Torch.split": Op(lambda *a: torch.split(*a), 1, lambda a: (a, 1, 0)),
    "Torch.max": Op(lambda *a: torch.max(*a), 1, lambda a: (a, 1)),
    "Torch.transpose": Op(lambda *a: torch.transpose(*a), 1, lambda a: (a, 0, 1)),
    "Torch.where": Op(lambda *a: torch.where(*a), 2, lambda a, b: (torch.eye(3) > 0, a, b), free=True),
    "Functional.linear": Op(lambda *a: F.linear(*a), 2, lambda a, b: (a, b, None)),
    "Functional.relu": Op(lambda *a: F.relu(*a), 1),
    "Functional.layer_norm": Op(lambda *a: F.layer_norm(*a), 1, lambda a: (a, (3,))),
    "Tensor.mul_": Op(lambda a, b: a.mul_(b), 1, lambda a: (a, 1.5), writes=True, free=True),
    "Tensor.add_": Op(lambda a, b: a.add_(b), 2, writes=True, free=True),
}
#: (names and picks of the calls, how each pass runs and its picks)
Program = tuple[list[tuple[str, list[int]]], list[tuple[str, list[int]]]]
picks = st.lists(st.integers(0, 40), min_size=3, max_size=3)
programs = st.tuples(
    st.lists(st.tuples(st.sampled_from(sorted(OPS)), picks), min_size=1, max_size=9),
    st.lists(st.tuples(st.sampled_from(["once", "twice"]), picks), min_size=1, max_size=3),
)


@define
class Call:
    """A call in an unwatched run: copies of its inputs, and for each pass the gradients of its outputs by number."""

    record: str
    op: Op
    arguments: tuple[Any, ...]
    arrived: dict[int, dict[int, Tensor]] = field(factory=dict)

    def gradients(self, arrived: dict[int, Tensor]) -> list[Tensor | None]:
        """The gradients of the arguments by autograd, given those of the outputs."""
        wanted = [t for t in tensors(self.arguments) if t is not None and t.requires_grad]
        copies = {id(t): t.clone() for t in wanted}  # a leaf must not be written
        made = list(tensors(self.op.function(*mapped(self.arguments, lambda t: copies.get(id(t), t)))))
        found = torch.autograd.grad(
            [made[i] for i in arrived], wanted, list(arrived.values()), allow_unused=True
        )
        by_id = {id(t): g for t, g in zip(wanted, found, strict=True)}
        return [by_id.get(id(t)) for t in tensors(self.arguments)]


def tensors(value: Any) -> Iterator[Tensor | None]:
    """Every place of a value, in order; None where no tensor is."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    else:
        yield value if isinstance(value, Tensor) else None


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, change) for item in value)
    return change(value) if isinstance(value, Tensor) else value


def run(
    program: Program, watch: Callable[[Op, str, tuple[Any, ...]], Callable[[Any, list[int]], None]]
) -> None:
    """Run a program. watch: called before each call; what it returns is called after it."""
    generator = torch.Generator().manual_seed(5)
    pool = [torch.randn(3, 3, generator=generator, requires_grad=i != 1) for i in range(3)]
    inputs = [t for t in pool if t.requires_grad]
    writable: list[Tensor] = []
    passes: list[int] = [0]
    counts: Counter[str] = Counter()
    twice = any(how == "twice" for how, _ in program[1])
    for name, numbers in program[0]:
        if twice and name == "Functional.linear":
            # The gradient of its gradient comes to the transposed weight inside it, and not through its output: the
            # formula of the truth does not have it.
            name = "Torch.matmul"
        op = OPS[name]
        given = [pool[n % len(pool)] for n in numbers[: op.inputs]]
        if op.writes:
            if not writable:
                continue
            given[0] = writable[numbers[0] % len(writable)]
            if any(t is given[0] for t in given[1:]) or not given[0].requires_grad:
                continue
        arguments = op.arguments(*given)
        done = watch(op, f"{name}.{counts[name]}.backward", arguments)
        counts[name] += 1
        out = op.function(*arguments)
        done(out, passes)
        if not op.free:
            writable = [t for t in writable if not any(t is g for g in given)]
        for t in tensors(out):
            if t is not None and t.is_floating_point() and not op.writes:
                fit = t if t.shape == (3, 3) else (t.view(-1)[:3] * torch.ones(3, 1))
                pool.append(fit)
                if t is fit and op.free:
                    writable.append(t)
    for how, numbers in program[1]:
        ends = [t for t in (pool[n % len(pool)] for n in numbers) if t.grad_fn is not None]
        if not ends:
            continue
        loss = sum(((i + 2) * t.sum() for i, t in enumerate(ends)), torch.zeros(()))
        if how == "once":
            loss.backward(retain_graph=True)
        else:
            found = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
            passes[0] += 1
            again = [g.square().sum() for g in found if g is not None and g.requires_grad]
            if again:
                sum(again, torch.zeros(())).backward(retain_graph=True)
        passes[0] += 1


def truth(program: Program) -> list[Call]:
    calls: list[Call] = []

    def watch(op: Op, record: str, arguments: tuple[Any, ...]) -> Callable[[Any, list[int]], None]:
        given = [t for t in tensors(arguments) if t is not None]
        copies = {id(t): t.detach().clone().requires_grad_(t.requires_grad) for t in given}
        call = Call(record, op, mapped(arguments, lambda t: copies[id(t)]))
        calls.append(call)

        def done(out: Any, passes: list[int]) -> None:
            for i, t in enumerate(tensors(out)):
                if t is not None and t.requires_grad:
                    t.register_hook(lambda g, i=i: arrived(i, g, passes[0]))

        def arrived(i: int, g: Tensor | None, number: int) -> None:
            if g is not None:
                call.arrived.setdefault(number, {})[i] = g.detach().clone()

        return done

    run(program, watch)
    return calls


def slots(value: Json) -> list[Json]:
    """The leaves of one side of a backward record: tensor objects and nulls."""
    if isinstance(value, dict) and "dtype" not in value:
        value = list(value.values())
    return [leaf for item in value for leaf in slots(item)] if isinstance(value, list) else [value]


def same(found: Sequence[Json], expected: Sequence[Tensor | None]) -> bool:
    return len(found) == len(expected) and all(
        slot is None if g is None else agrees(slot, g, 1e-5) for slot, g in zip(found, expected, strict=True)
    )


#: A tensor given twice, nested arguments of which one needs no gradient, several outputs of which two are not used,
#: values beside indices, arguments without a gradient, and two calls that share what another made.
SOME = [
    ("Torch.mul", [0, 0, 0]),
    ("Torch.cat", [0, 1, 2]),
    ("Torch.split", [0, 0, 0]),
    ("Torch.max", [0, 0, 0]),
    ("Functional.linear", [1, 2, 0]),
    ("Torch.add", [3, 4, 0]),
    ("Torch.matmul", [3, 4, 0]),
]


@given(programs)
@example((SOME, [("once", [3, 4, 5]), ("once", [8, 9, 6]), ("once", [10, 11, 9])]))
@example(([("Torch.sin", [0, 0, 0])], [("twice", [3, 3, 3])]))
def test_every_call_has_its_own_gradients_in_each_pass(program: Program) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = capture(Path(folder), lambda: run(program, lambda *_: lambda *_: None), level="L1")
    for call in truth(program):
        passes = [call.arrived[n] for n in sorted(call.arrived)]
        if not passes:
            assert call.record not in data
            continue
        record = data[call.record]
        records = [record, *record.get("later_passes", [])]
        assert len(records) == len(passes), call.record
        for one, arrived in zip(records, passes, strict=True):
            given = slots(one["input"])
            assert same(given, [arrived.get(i) for i in range(len(given))]), f"{call.record} input"
            assert same(slots(one["output"]), call.gradients(arrived)), f"{call.record} output"
