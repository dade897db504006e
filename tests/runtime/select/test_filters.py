"""What is selected: steps, ranks, fields and calls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format.names import with_direction
from probe_runtime.config import resolve
from probe_runtime.select.fields import Fields, fields_of
from probe_runtime.select.filters import NameFilter

# A forward pass as (name, calls inside): what the examples below select from.
Calls = list[tuple[str, Any]]
NETWORK: Calls = [
    ("Module.a.Linear.forward.0", [("Functional.linear.0.forward", [])]),
    ("Functional.gelu.0.forward", []),
    ("Module.b.Linear.forward.0", [("Functional.linear.1.forward", [])]),
    (
        "Module.seq.Sequential.forward.0",
        [
            ("Module.seq.0.Linear.forward.0", [("Functional.linear.2.forward", [])]),
            ("Module.seq.1.Tanh.forward.0", [("Torch.tanh.0.forward", [])]),
        ],
    ),
    ("Torch.sigmoid.0.forward", []),
]


def names(calls: Calls) -> Iterator[str]:
    for name, inside in calls:
        yield name
        yield from names(inside)


def run(keep: NameFilter, calls: Calls, ancestors: tuple[str, ...] = ()) -> Iterator[str]:
    """The forward names that are kept, as a run with these calls asks."""
    for name, inside in calls:
        if keep.enter(name, ancestors):
            yield name
        yield from run(keep, inside, (*ancestors, name))
        keep.leave(name)


def short(name: str) -> str:
    """``Module.seq.0.Linear.forward.0`` -> ``seq.0``, ``Functional.linear.0.forward`` -> ``linear.0``."""
    parts = name.split(".")
    return ".".join(parts[1:-3] if parts[0] == "Module" else parts[1:-1])


def selected(calls: Calls = NETWORK, level: str = "mix", **keys: Any) -> tuple[str, str]:
    """(forward, backward) records, in forward order, shortened."""
    keep = NameFilter(resolve(level=level, dump_path="d", **keys))
    forward = list(run(keep, calls))
    backward = [n for n in names(calls) if keep.backward(n)]
    return " ".join(map(short, forward)), " ".join(map(short, backward))


ALL = "a linear.0 gelu.0 b linear.1 seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0"


# ---------------- scope. Expected sets were compared with msprobe 26.2 on this network; see spec/config.md
@pytest.mark.parametrize(
    ("begin", "end", "forward", "backward"),
    [
        # two forward names: the calls entered in between, with the end's output and all backwards
        ("Module.b.Linear.forward.0", "Module.seq.Sequential.forward.0",
         "b linear.1 seq seq.0 linear.2 seq.1 tanh.0", "b linear.1 seq seq.0 linear.2 seq.1 tanh.0"),
        ("Functional.gelu.0.forward", "Module.seq.0.Linear.forward.0",
         "gelu.0 b linear.1 seq seq.0 linear.2", "gelu.0 b linear.1 seq seq.0 linear.2"),
        ("Functional.gelu.0.forward", "Functional.gelu.0.forward", "gelu.0", "gelu.0"),
        ("Module.seq.0.Linear.forward.0", "Module.seq.0.Linear.forward.0",
         "seq.0 linear.2", "seq.0 linear.2"),
        ("Module.seq.Sequential.forward.0", "Functional.linear.2.forward",
         "seq seq.0 linear.2", "seq seq.0 linear.2"),
        # two backward names: no forward; from the begin back to the end
        ("Torch.tanh.0.backward", "Functional.linear.1.backward",
         "", "linear.1 seq seq.0 linear.2 seq.1 tanh.0"),
        ("Module.seq.0.Linear.backward.0", "Module.b.Linear.backward.0",
         "", "b linear.1 seq seq.0 linear.2"),
        # forward to backward: everything forward from the begin, everything backward down to the end
        ("Functional.gelu.0.forward", "Torch.tanh.0.backward",
         "gelu.0 b linear.1 seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0", "tanh.0 sigmoid.0"),
        ("Module.b.Linear.forward.0", "Module.seq.Sequential.backward.0",
         "b linear.1 seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0", "seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0"),
        # an end that never comes keeps the scope open, a begin that never comes keeps it shut
        ("Functional.gelu.0.forward", "Functional.gelu.9.forward",
         "gelu.0 b linear.1 seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0",
         "gelu.0 b linear.1 seq seq.0 linear.2 seq.1 tanh.0 sigmoid.0"),
        ("Functional.gelu.9.forward", "Torch.sigmoid.0.forward", "", ""),
        # the end came first
        ("Torch.tanh.0.forward", "Functional.gelu.0.forward", "tanh.0 sigmoid.0", "tanh.0 sigmoid.0"),
    ],
)  # fmt: skip
def test_scope(begin: str, end: str, forward: str, backward: str) -> None:
    assert selected(scope=[begin, end]) == (forward, backward)


def test_scope_opens_once_a_step() -> None:
    keep = NameFilter(resolve(scope=["Torch.a.0.forward", "Torch.b.0.forward"]))
    calls: Calls = [(f"Torch.{n}.0.forward", []) for n in "xabz"]
    assert [short(n) for n in run(keep, calls)] == ["a.0", "b.0"]
    # Recomputed: the same names again. What was wanted is wanted, and nothing else comes in.
    assert [short(n) for n in run(keep, calls)] == ["a.0", "b.0"]
    assert not keep.enter("Torch.c.0.forward")
    keep = NameFilter(resolve(scope=["Torch.a.0.forward", "Torch.b.0.forward"]))
    assert not keep.enter("Torch.c.0.forward")
    assert [short(n) for n in run(keep, calls)] == ["a.0", "b.0"]


def test_scope_ends_when_its_end_raises() -> None:
    """leave is told of every end of a call, and the scope cannot stay open."""
    keep = NameFilter(resolve(scope=["Torch.a.0.forward", "Torch.b.0.forward"]))
    assert keep.enter("Torch.a.0.forward")
    keep.leave("Torch.a.0.forward")
    assert keep.enter("Torch.b.0.forward")
    assert keep.enter("Torch.inner.0.forward")
    keep.leave("Torch.b.0.forward")
    assert not keep.enter("Torch.c.0.forward")


def test_asking_for_gradients_opens_no_scope() -> None:
    keep = NameFilter(resolve(scope=["Torch.a.0.forward", "Torch.b.0.forward"]))
    assert not keep.backward("Torch.a.0.forward")
    assert not keep.enter("Torch.x.0.forward")


# ---------------- list
@pytest.mark.parametrize(
    ("level", "entries", "forward", "backward"),
    [
        ("L1", ["gelu"], "gelu.0", "gelu.0"),
        ("L1", ["linear.1.forward"], "linear.1", ""),
        ("L1", ["Functional.gelu.0.backward"], "", "gelu.0"),
        ("L1", ["GELU"], "", ""),
        ("L1", ["gelu", "Torch."], "gelu.0 tanh.0 sigmoid.0", "gelu.0 tanh.0 sigmoid.0"),
        ("mix", ["Module.seq.Sequential.forward.0"], "seq seq.0 linear.2 seq.1 tanh.0", ""),
        ("mix", ["Module.seq.Sequential.backward.0"], "", "seq seq.0 linear.2 seq.1 tanh.0"),
        ("mix", ["seq"], "seq seq.0 linear.2 seq.1 tanh.0", "seq seq.0 linear.2 seq.1 tanh.0"),
        ("mix", ["linear.1"], "linear.1", "linear.1"),
        ("mix", ["Linear"], "a linear.0 b linear.1 seq.0 linear.2", "a linear.0 b linear.1 seq.0 linear.2"),
        # at L0 a name means that module alone
        ("L0", ["Module.seq.Sequential.forward.0"], "seq", ""),
        ("L0", ["seq"], "seq seq.0 seq.1", "seq seq.0 seq.1"),
    ],
)
def test_list(level: str, entries: list[str], forward: str, backward: str) -> None:
    def of(level: str, calls: Calls) -> Calls:
        """The calls that this level sees at all."""
        out: Calls = []
        for name, inside in calls:
            seen = level == "mix" or name.startswith("Module") == (level == "L0")
            out += [(name, of(level, inside))] if seen else of(level, inside)
        return out

    assert selected(of(level, NETWORK), level, list=entries) == (forward, backward)


def test_a_full_module_name_is_that_call_only() -> None:
    calls: Calls = [(f"Module.a.Linear.forward.{i}", []) for i in range(12)]
    assert selected(calls, list=["Module.a.Linear.forward.1"]) == ("a", "")
    # A part of a name is a part of a name.
    assert selected(calls, list=["forward.1"])[0] == "a a a"


def test_scope_and_list_together() -> None:
    both: dict[str, Any] = {
        "scope": ["Functional.gelu.0.forward", "Torch.sigmoid.0.forward"],
        "list": ["linear"],
    }
    assert selected(**both) == ("linear.1 linear.2", "linear.1 linear.2")


def test_without_a_filter_everything_is_wanted() -> None:
    assert selected() == (ALL, ALL)
    assert not NameFilter(resolve()).active


def test_a_call_that_began_before_the_step() -> None:
    keep = NameFilter(resolve(list=["gelu"]))
    assert keep.backward("Functional.gelu.0.forward")
    assert not keep.backward("Functional.relu.0.forward")


def test_tensor_list() -> None:
    keep = NameFilter(resolve(tensor_list=["gelu", "b.Linear"]))
    assert keep.enter("Functional.relu.0.forward"), "the statistics of all are wanted"
    wanted = ["Functional.gelu.0.forward", "Functional.gelu.0.backward", "Module.b.Linear.parameters_grad"]
    assert all(map(keep.tensors, wanted))
    assert not keep.tensors("Functional.relu.0.forward")
    assert not NameFilter(resolve()).tensors("Functional.relu.0.forward")


# ---------------- what matched nothing
def test_unmatched() -> None:
    keep = NameFilter(
        resolve(
            level="mix",
            list=["gelu", "lineer", "Functional.gelu.7.forward", "Torch.tanh.1.backward"],
            tensor_list=["sigmod", "tanh"],
            scope=["Module.x.Linear.forward.0", "Torch.sigmoid.0.forward"],
        )
    )
    list(run(keep, NETWORK))
    keep.tensors("Torch.tanh.0.forward")
    found = {(what, value): nearest for what, value, nearest in keep.unmatched(names(NETWORK))}
    assert set(found) == {
        ("list", "lineer"),
        ("list", "Functional.gelu.7.forward"),
        ("list", "Torch.tanh.1.backward"),
        ("tensor_list", "sigmod"),
        ("scope[0]", "Module.x.Linear.forward.0"),
    }
    assert found["list", "lineer"][0].lower() == "linear"
    assert found["list", "Functional.gelu.7.forward"][0] == "Functional.gelu.0.forward"
    assert found["list", "Torch.tanh.1.backward"][0] == "Torch.tanh.0.backward"
    assert found["tensor_list", "sigmod"] == ("sigmoid",)
    assert found["scope[0]", "Module.x.Linear.forward.0"][0] in (
        "Module.a.Linear.forward.0",
        "Module.b.Linear.forward.0",
    )


@pytest.mark.parametrize(
    ("scope", "missing"),
    [
        (["Functional.gelu.0.forward", "Torch.sigmoid.0.forward"], []),
        (["Functional.gelu.0.forward", "Torch.sigmoid.1.forward"], ["scope[1]"]),
        (["Functional.gelu.1.forward", "Torch.sigmoid.1.forward"], ["scope[0]", "scope[1]"]),
        (["Torch.sigmoid.0.forward", "Functional.gelu.0.forward"], ["scope[1], which came before scope[0]"]),
        (["Torch.sigmoid.0.backward", "Functional.gelu.0.backward"], []),
        (["Torch.sigmoid.0.backward", "Functional.gelu.1.backward"], ["scope[1]"]),
        (["Torch.sigmoid.1.backward", "Functional.gelu.0.backward"], ["scope[0]"]),
        (["Functional.gelu.0.forward", "Functional.gelu.0.backward"], []),
        (["Functional.gelu.0.forward", "Functional.gelu.1.backward"], ["scope[1]"]),
    ],
)
def test_unmatched_scope(scope: list[str], missing: list[str]) -> None:
    keep = NameFilter(resolve(scope=scope))
    list(run(keep, NETWORK))
    found = keep.unmatched(names(NETWORK))
    assert [what for what, _, _ in found] == missing
    for what, value, _ in found:
        assert value == scope[int(what[6])]
    keep = NameFilter(resolve(scope=scope))
    assert keep.unmatched(names(NETWORK)), "in a new step nothing has matched yet"


def test_unmatched_of_a_step_without_calls() -> None:
    assert NameFilter(resolve(list=["relu"])).unmatched([]) == [("list", "relu", ())]
    assert NameFilter(resolve()).unmatched(["Torch.relu.0.forward"]) == []


# ---------------- threads
def test_threads_share_one_filter() -> None:
    keep = NameFilter(resolve(list=["wanted"]))
    got: list[list[bool]] = [[] for _ in range(8)]

    def work(i: int) -> None:
        for n in range(200):
            name = f"Torch.{'wanted' if n % 2 else 'other'}.{i * 1000 + n}.forward"
            got[i].append(keep.enter(name) and keep.backward(name))
            keep.leave(name)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert got == [[bool(n % 2) for n in range(200)]] * 8


def test_a_scope_is_open_for_every_thread() -> None:
    keep = NameFilter(resolve(scope=["Torch.a.0.forward", "Torch.b.0.forward"]))
    keep.enter("Torch.a.0.forward")
    with ThreadPoolExecutor() as pool:
        assert pool.submit(keep.enter, "Torch.elsewhere.0.forward").result()


# ---------------- properties
api_names = st.builds(
    lambda p, a, n: f"{p}.{a}.{n}.forward",
    st.sampled_from(["Torch", "Tensor"]), st.sampled_from(["relu", "sin", "a.b"]), st.integers(0, 12),
)  # fmt: skip
module_names = st.builds(
    lambda p, c, n: f"Module.{p}.{c}.forward.{n}",
    st.sampled_from(["fc", "a.0", "forward"]), st.sampled_from(["Linear", "ReLU"]), st.integers(0, 12),
)  # fmt: skip


@given(api_names | module_names)
def test_turning_there_and_back(name: str) -> None:
    back = with_direction(name, "backward")
    assert back != name
    assert with_direction(back, "forward") == name
    assert with_direction(name, "forward") == name
    assert with_direction("optimizer", "backward") == "optimizer"


@given(st.lists(api_names, unique=True, min_size=1), st.data())
def test_a_scope_is_a_slice_of_the_calls(calls: list[str], data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(calls) - 1))
    j = data.draw(st.integers(i, len(calls) - 1))
    keep = NameFilter(resolve(scope=[calls[i], calls[j]]))
    assert list(run(keep, [(c, []) for c in calls])) == calls[i : j + 1]
    assert [c for c in calls if keep.backward(c)] == calls[i : j + 1]
    back = NameFilter(
        resolve(scope=[with_direction(calls[j], "backward"), with_direction(calls[i], "backward")])
    )
    assert list(run(back, [(c, []) for c in calls])) == []
    assert [c for c in calls if back.backward(c)] == calls[i : j + 1]
    assert back.unmatched(calls) == keep.unmatched(calls) == []


# ---------------- steps, ranks, fields
def test_steps() -> None:
    some = resolve(step=[1, "4-5"])
    assert [n for n in range(8) if some.wants_step(n)] == [1, 4, 5]
    assert some.step.last == 5
    every = resolve()
    assert every.wants_step(0) and every.wants_step(10**9)
    assert every.step.last is None


def test_ranks() -> None:
    some = resolve(rank=[0, 2])
    assert [r for r in (None, 0, 1, 2) if some.wants_rank(r)] == [None, 0, 2]
    assert not resolve(rank=[1]).wants_rank(None)
    assert resolve().wants_rank(7)


# Which keys of records msprobe 26.2 keeps, run by run, for each data_mode.
@pytest.mark.parametrize(
    ("mode", "kept"),
    [
        ("all", "input output parameters backward_input backward_output parameters_grad"),
        ("forward", "input output parameters"),
        ("backward", "backward_input backward_output parameters_grad"),
        ("input", "input backward_input parameters_grad"),
        ("output", "output parameters backward_output parameters_grad"),
        ("forward input", "input"),
        ("forward output", "output parameters"),
        ("backward input", "backward_input parameters_grad"),
        ("backward output", "backward_output parameters_grad"),
        ("forward backward", "input output parameters backward_input backward_output parameters_grad"),
        ("input output", "input output parameters backward_input backward_output parameters_grad"),
        ("forward backward input", "input backward_input parameters_grad"),
        ("", "input output parameters backward_input backward_output parameters_grad"),
    ],
)
def test_fields(mode: str, kept: str) -> None:
    fields = fields_of(resolve(data_mode=mode.split()))
    assert fields == Fields(**{a.name: a.name in kept.split() for a in Fields.__attrs_attrs__})
    assert fields.forward == bool({"input", "output"} & set(kept.split()))
    assert fields.backward == ("parameters_grad" in kept.split())
