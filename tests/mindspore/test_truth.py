"""Promise 2: every recorded number is the true one, and so is every tensor file; and the run's bits are its own.

Each network that these tests have runs in PyNative. Its Cells are compared with what `mindspore_witness` saw of the
same run. The gradients are taken in another way than Probe takes them: a tensor of zeros is added to each place of what
a Cell is given and of what it returns, and MindSpore differentiates by these. So each place has its own share.
Functions are called again on the tensor files of their record, and give what the record says; so do their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import compiled_zoo
import gradient_nets
import graph_everyday
import graph_nets
import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
import pytest
import reference_cells
import returning_cells
from documents import Json, objects, rank_dir, records, report, validate
from mindspore import Tensor, mint, nn, ops
from mindspore_dumping import agrees, collected, construct, load
from mindspore_witness import Path as Slot
from mindspore_witness import Place, Seen, array, contributions, listed, same, separated, tensors, witnessed
from probe_mindspore.hooks import gradients

pytestmark = [pytest.mark.usefixtures("pynative"), pytest.mark.filterwarnings("ignore:Probe recorded")]
DTYPES = {str(d): d for d in (ms.float16, ms.float32, ms.int32, ms.int64, ms.bool_)}
# Draw random numbers, write into what they are given, or run a compiled graph: there is no calling them again.
NOT_AGAIN = {"Primitive.dropout.Dropout", "Functional.dropout", "Functional.assign", "Functional.assign_add"}
# Outputs that MindSpore's CPU kernel leaves as the memory was: they are other numbers in every call.
UNWRITTEN = {"Primitive.bn_train.BatchNorm": (("output", "1"), ("output", "2"))}

Built = tuple[nn.Cell, tuple[Any, ...]]


def _of_case(case: zoo.Case) -> Callable[[], Built]:
    return lambda: (zoo.build(case), case[1](np.random.default_rng(3)))


def _of_net(kind: Any, x: Any) -> Callable[[], Built]:
    return lambda: (kind().settle().set_train(), (x(),))


NETWORKS: dict[str, Callable[[], Built]] = {
    **{f"zoo {name}": _of_case(case) for name, case in compiled_zoo.ALL.items()},
    **{f"gradient {name}": _of_net(*net) for name, net in gradient_nets.NETS.items()},
    **{f"returning {name}": _of_net(*net) for name, net in returning_cells.NETS.items()},
    **{
        f"graph {name}": lambda kind=kind: (graph_nets.build(kind), (graph_nets.batch(),))
        for name, kind in {"net": graph_nets.Net, "jitted": graph_nets.Jitted, **graph_everyday.NETS}.items()
    },
    "reference": lambda: (reference_cells.Net(), reference_cells.data()),
}


#: Networks whose Cells all run in graphs: no part of a PyNative dump.
ALL_COMPILED = ("graph jitted",)


def built(name: str) -> Built:
    """The network from its seed. Dropout is off: its numbers can't be drawn again."""
    zoo.fixed()
    model, batch = NETWORKS[name]()
    for _, cell in model.cells_and_names():
        if isinstance(cell, nn.Dropout):
            cell.set_train(False)
    return model, batch


def loss_of(model: nn.Cell, batch: tuple[Any, ...]) -> Any:
    """The sum of what the network gives first."""
    out = model(*batch)
    return (out[0] if isinstance(out, tuple) else out).sum()


def trained(model: nn.Cell, batch: tuple[Any, ...]) -> list[Any]:
    """The loss and all gradients, those of the batch as well; those of the weights come last."""
    floats = tuple(i for i, t in enumerate(batch) if t.dtype == ms.float32) or None
    of = ms.value_and_grad(lambda *batch: loss_of(model, batch), floats, model.trainable_params())
    return [array(t) for _, t in tensors(of(*batch))]


#: Whose functions and parameters' gradients are judged too.
AGAIN = tuple(f"zoo {name}" for name in zoo.CASES)
#: What 2.7 runs too.
ON_BOTH = (*AGAIN, "graph jitted", "reference")
#: `mix` records all that L0 does. Level L0 is for those whose Cells call functions that are replaced at mix.
ALONE = ("zoo gpt", "zoo residual", "zoo branches", "reference")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        *(pytest.param(n, "mix", marks=[pytest.mark.once] * (n not in ON_BOTH)) for n in NETWORKS),
        *(pytest.param(n, "L0", marks=pytest.mark.once) for n in ALONE),
    ],
)
def test_every_recorded_value_is_the_true_one(
    name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = trained(*built(name))
    model, batch = built(name)
    with collected(tmp_path, model, level=level, task="tensor", step=[0]):
        watched = trained(model, batch)
    assert [a.tobytes() for a in truth] == [a.tobytes() for a in watched]
    dump = tmp_path / "dump"
    dump = dump / "pynative" if (dump / "pynative").is_dir() else dump
    validate(rank_dir(dump))
    found, jury = records(dump), Jury(dump)
    if name in AGAIN and level == "mix":
        assert judge_functions(jury, found, model, construct(dump)) >= 5
        judge_parameters(jury, found, model, truth[-len(model.trainable_params()) :])
    model, batch = built(name)
    with witnessed(model) as calls:
        trained(model, batch)
    if name in AGAIN:
        assert {n for n in found if n.startswith("Cell.") and ".forward." in n} == calls.keys()
    model, batch = built(name)
    _without_recomputation(model, monkeypatch)
    judged = judge_cells(jury, found, calls, separated(model, lambda: loss_of(model, batch)))
    assert not jury.wrong, f"{len(jury.wrong)} of {jury.compared + judged}: " + "\n".join(jury.wrong[:20])
    assert judged or name in ALL_COMPILED


def judge_cells(
    jury: Jury, found: dict[str, Json], calls: dict[str, Seen], shares: dict[str, dict[Slot, Place]]
) -> int:
    """Judge every call of a Cell: what it was given and gave, its gradients, and what it sent back.

    Returns how many gradients were judged.
    """
    judged = 0
    for call, seen in calls.items():
        record = found[call]
        assert list(record["input_kwargs"]) == list(seen.kwargs)
        given = {slot: array(t) for slot, t in tensors(seen.slots)}
        slots = objects([*record["input_args"], *record["input_kwargs"].values()])
        out = objects({"output": record["output"]})
        for side, there, truth in (("input", slots, given), ("output", out, seen.gave)):
            jury.same(f"{call} {side}", there, truth)
            jury.missing(f"{call} {side}", there, truth)
        back = found.get(call.replace(".forward.", ".backward."))
        if "_recompute_cell" in call:  # MindSpore's own Cell around one that is computed again
            continue
        if back is None:
            cell = call.rpartition(".forward.")[0]
            told = any(cell in entry["what"] for entry in report(jury.dump)["not_seen"])
            jury.wrong += [f"{call}: no backward record"] if seen.grads and not told else []
            continue
        places = shares.get(call) or shares[_first(call, calls)]
        for side in ("input", "output"):
            for slot, leaf in objects(back[side]).items():
                judged += 1
                verdict = _verdict(jury.dump, side, slot, leaf, places, seen, back)
                jury.wrong += [f"{call} backward.{side} {slot}: {verdict}"] if verdict else []
        for (side, *slot), place in places.items():
            came = seen.grads if side == "input" else seen.wholes
            if place.share.any() and tuple(slot) in came.keys() - objects(back[side]).keys():
                jury.wrong.append(f"{call} backward.{side} {slot}: nothing recorded")
    return judged


def _first(again: str, calls: dict[str, Any]) -> str:
    """The call that is made a second time in the backward pass: one of that Cell with the same values."""
    cell, _, _ = again.rpartition(".")
    mine = [array(t) for _, t in tensors(calls[again].slots)]
    return next(
        call
        for call, seen in calls.items()
        if call.startswith(f"{cell}.")
        and all(same(array(t), a) for (_, t), a in zip(tensors(seen.slots), mine, strict=True))
    )


def _without_recomputation(model: nn.Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed again has the same values, but the zeros would be other ones."""
    for _, cell in model.cells_and_names():
        cell._recompute_cell = None
    monkeypatch.setattr(ms, "recompute", lambda function, *args: function(*args))


def _is(dump: Path, leaf: Json, truth: Any, digits: float = 1e-5) -> bool:
    return not truth.size or same(load(dump, leaf), truth, digits)


def _verdict(
    dump: Path, side: str, slot: Any, leaf: Json, places: dict[Any, Place], seen: Any, back: Json
) -> str:
    """What is wrong with a gradient in a record; empty where it is true, or says that nothing tells it."""
    place = places[side, *slot]
    others = [tuple(other.split(".")[1:]) for other in leaf.get("shared_with", ())]
    truth = sum((places[side, *other].share for other in others), place.share)
    through = sum(
        places["input", *path].share for path in place.returned
    )  # what comes by way of what is returned
    if side == "input":
        untold = len(place.returned) > 1 or (place.given and not place.alone)
        if not place.given:  # the whole gradient, of what uses it inside the call as well
            truth = seen.grads[slot]
    else:
        untold = gradients.OWN and place.returned and not place.alone and same(truth, through)
    if untold:
        return (
            "" if "unsupported" in leaf and leaf["Norm"] is None else "a number where nothing tells the share"
        )
    if "unsupported" in leaf:
        return "no number"
    if side == "output" and not gradients.OWN:
        return ""  # the report says so
    if place.returned and side == "output" and not place.alone:
        truth = truth - through
        if not back.get("partial"):
            return "not marked as partial"
    elif place.given or (place.returned and side == "output"):
        return ""  # nothing but an input: all that comes to that tensor
    return (
        "" if _is(dump, leaf, truth, 1e-4) else f"{load(dump, leaf).ravel()[:4]} is not {truth.ravel()[:4]}"
    )


class Impossible(Exception):
    """A record does not hold all that is needed to make its call again."""


class Jury:
    """Compares records with the truth; counts what was compared and collects what is wrong."""

    def __init__(self, dump: Path) -> None:
        self.dump = dump
        self.compared = 0
        self.wrong: list[str] = []

    def same(self, name: str, found: dict[Slot, Json], truth: dict[Slot, Any], digits: float = 1e-5) -> None:
        """Every value that is recorded has this truth, in its statistics and in its file."""
        for slot in sorted(found.keys() - truth.keys()):
            self.wrong.append(f"{name} {slot}: nothing true")
        for slot in found.keys() & truth.keys():
            self.compared += 1
            leaf, a = found[slot], truth[slot]
            if leaf["shape"] != list(a.shape):
                self.wrong.append(f"{name} {slot}: {leaf['shape']} is not {a.shape}")
            elif a.size:
                file = load(self.dump, leaf)
                if not same(file, a, digits) or (file.dtype.kind == "f" and not agrees(leaf, file, 1e-5)):
                    self.wrong.append(f"{name} {slot}: {leaf}, {file.ravel()[:4]} is not {a.ravel()[:4]}")

    def missing(self, name: str, found: dict[Slot, Json], truth: dict[Slot, Any]) -> None:
        """Nothing that is true is left out."""
        self.wrong += [f"{name} {slot}: nothing recorded" for slot in sorted(truth.keys() - found.keys())]


def value(dump: Path, node: Json) -> Any:
    """What stands in a record as the value that it was."""
    if node is None:
        return None
    if isinstance(node, list):
        return tuple(value(dump, item) for item in node)
    if "dtype" in node and "shape" in node:
        if "data_name" not in node:
            raise Impossible("a tensor without a file")
        return Tensor(load(dump, node), DTYPES[node["dtype"]])
    kind = node.get("type")
    if kind in ("int", "float", "bool", "str"):
        return node["value"]
    if kind == "mindspore.dtype":
        return DTYPES[node["value"]]
    if kind == "slice":
        return slice(*node["value"])
    if kind == "ellipsis":
        return ...
    raise Impossible(kind)


def function(name: str, model: nn.Cell, parent: str | None) -> Any:
    """What a record's name calls: a function of MindSpore, or the Primitive of a Cell."""
    prefix, api = name.split(".")[:2]
    if prefix == "Primitive":
        assert parent is not None
        path = parent.split(".forward.")[0].removeprefix("Cell.").rsplit(".", 1)[0]
        return getattr(dict(model.cells_and_names())[path], api)
    homes = {"Functional": ops, "Tensor": Tensor, "Mint": mint, "MintFunctional": mint.nn.functional}
    if prefix not in homes:
        raise Impossible(name)
    return getattr(homes[prefix], api)


def judge_functions(jury: Jury, found: dict[str, Json], model: nn.Cell, parents: dict[str, Any]) -> int:
    """Call every recorded function again on its files; how many calls that were."""
    again = 0
    for name, record in found.items():
        base = name.rsplit(".", 2)[0]
        if not name.endswith(".forward") or base in NOT_AGAIN or "Jit" in base:
            continue
        if base.endswith("_") and base.split(".")[1] in ("__setitem__", "__iadd__"):
            continue
        parent = parents[name]
        parent = parent[0] if isinstance(parent, list) else parent
        try:
            call = function(base, model, parent)
            args = tuple(value(jury.dump, node) for node in record["input_args"])
            kwargs = {key: value(jury.dump, node) for key, node in record["input_kwargs"].items()}
        except Impossible:
            continue
        if not any(True for _ in tensors((args, kwargs))):
            continue
        again += 1
        out = {("output", *slot): array(t) for slot, t in tensors(listed(call(*args, **kwargs)))}
        leaves = objects({"output": record["output"]})
        for slot in UNWRITTEN.get(base, ()):
            del leaves[slot], out[slot]
        jury.same(f"{name} again", leaves, out)
        jury.missing(f"{name} again", leaves, out)
        backward = found.get(name.removesuffix("forward") + "backward")
        if backward is not None and gradients.OWN and not isinstance(record["output"], dict):
            grads = {slot: load(jury.dump, leaf) for slot, leaf in objects(backward["input"]).items()}
            shares = contributions(call, args, kwargs, grads)
            back = objects(backward["output"])
            for slot, leaf in back.items():
                if "shared_with" in leaf:  # the same tensor in several places
                    others = [tuple(other.split(".")[1:]) for other in leaf["shared_with"]]
                    shares[slot] = sum((shares[o] for o in others if o != slot), shares[slot])
                    for other in others:
                        back = {k: v for k, v in back.items() if k != other or k == slot}
            jury.same(f"{name} vjp", back, shares, 1e-4)
    return again


def judge_parameters(jury: Jury, found: dict[str, Json], model: nn.Cell, truth: list[Any]) -> None:
    """The gradient of every parameter that is recorded."""
    grads = {id(p): g for p, g in zip(model.trainable_params(), truth, strict=True)}
    judged = 0
    for path, cell in model.cells_and_names():
        record = found.get(f"Cell.{path}.{type(cell).__name__}.parameters_grad", {})
        for own, p in cell._params.items():
            if own in record and id(p) in grads:
                judged += 1
                jury.same(f"{path} parameters_grad", {(own,): record[own][0]}, {(own,): grads[id(p)]})
    assert judged >= len(truth) - 1


@pytest.mark.parametrize("fault", ["number", "shape", "missing", "extra"])
def test_the_jury_can_convict(fault: str, tmp_path: Path) -> None:
    """One wrong number, one missing value and one value too many are each found."""
    model, batch = built("zoo tied")
    with collected(tmp_path, model, level="mix", task="tensor", step=[0]):
        model(*batch)
    name, record = next((n, r) for n, r in records(tmp_path / "dump").items() if objects(r["output"]))
    found = objects(record["output"])
    truth = {slot: load(tmp_path / "dump", leaf) for slot, leaf in found.items()}
    assert truth
    jury = Jury(tmp_path / "dump")
    jury.same(name, found, truth)
    jury.missing(name, found, truth)
    assert not jury.wrong
    slot = next(iter(truth))
    if fault == "number":
        truth[slot] = truth[slot] * 1.0001
    elif fault == "shape":
        truth[slot] = truth[slot][None]
    elif fault == "missing":
        truth["9",] = truth[slot]
    else:
        del truth[slot]
    jury.same(name, found, truth)
    jury.missing(name, found, truth)
    assert jury.wrong
