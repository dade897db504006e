"""Promise 2: every recorded number is the true one, and so is every tensor file.

Cells are compared with what `mindspore_witness` saw of the same run. Functions are called again on the tensor
files of their record, and give what the record says; so do their gradients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
import pytest
from documents import objects
from mindspore import Tensor, mint, nn, ops
from mindspore_dumping import agrees, construct, load, opened, records
from mindspore_witness import Path as Slot
from mindspore_witness import Seen, array, contributions, listed, same, tensors, witnessed
from probe_mindspore.hooks import gradients

Json = Any
pytestmark = pytest.mark.usefixtures("pynative")
DTYPES = {str(d): d for d in (ms.float16, ms.float32, ms.int32, ms.int64, ms.bool_)}
# Draw random numbers, write into what they are given, or run a compiled graph: there is no calling them again.
NOT_AGAIN = {"Primitive.dropout.Dropout", "Functional.dropout", "Functional.assign", "Functional.assign_add"}
# Outputs that MindSpore's CPU kernel leaves as the memory was: they are other numbers in every call.
UNWRITTEN = {"Primitive.bn_train.BatchNorm": (("output", "1"), ("output", "2"))}


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


def built(case: str) -> tuple[nn.Cell, Any]:
    """The network from its seed, and its batch. Dropout is off: its numbers can't be drawn again."""
    zoo.fixed()
    model = zoo.build(zoo.CASES[case])
    for cell in model.cells():
        for drop in [c for _, c in cell.cells_and_names() if isinstance(c, nn.Dropout)]:
            drop.set_train(False)
    for _, drop in model.cells_and_names():
        if isinstance(drop, nn.Dropout):
            drop.set_train(False)
    return model, zoo.CASES[case][1](np.random.default_rng(3))


def taken(model: nn.Cell, batch: Any) -> list[Any]:
    """The gradients of the parameters."""
    weights = model.trainable_params()
    return [array(g) for g in ms.value_and_grad(model, None, weights)(*batch)[1]]


@pytest.mark.parametrize("case", zoo.CASES)
def test_every_recorded_value_is_the_true_one(case: str, tmp_path: Path) -> None:
    model, batch = built(case)
    with witnessed(model) as calls:
        truth = taken(model, batch)
    model, batch = built(case)
    with opened(tmp_path, level="mix", task="tensor", step=[0]) as debugger:
        debugger.start(model)
        weights = taken(model, batch)
        debugger.stop()
        debugger.step()
    assert all(same(a, b) for a, b in zip(truth, weights, strict=True))
    found = records(tmp_path / "dump")
    jury = Jury(tmp_path / "dump")
    judge_cells(jury, found, calls)
    cells = jury.compared
    again = judge_functions(jury, found, model, construct(tmp_path / "dump"))
    judge_parameters(jury, found, model, truth)
    assert not jury.wrong, f"{len(jury.wrong)} of {jury.compared} are wrong: " + "\n".join(jury.wrong[:20])
    assert cells >= 6
    assert again >= 5


def judge_cells(jury: Jury, found: dict[str, Json], calls: dict[str, Seen]) -> None:
    """Every call of a Cell: what it was given and gave, its gradients, and what it sent back."""
    forward = {name for name in found if name.startswith("Cell.") and ".forward." in name}
    assert forward == calls.keys()
    for name in forward:
        seen, record = calls[name], found[name]
        given = {slot: array(t) for slot, t in tensors(seen.slots)}
        slots = objects([*record["input_args"], *record["input_kwargs"].values()])
        keywords = {str(len(seen.args) + i): key for i, key in enumerate(seen.kwargs)}
        assert list(keywords.values()) == list(record["input_kwargs"])
        jury.same(name, slots, given)
        jury.missing(name, slots, given)
        out = objects({"output": record["output"]})
        jury.same(name, out, seen.gave)
        jury.missing(name, out, seen.gave)
        backward = found.get(name.replace(".forward.", ".backward."))
        if backward is None:
            if seen.grads:
                jury.wrong.append(f"{name}: gradients came, and there is no backward record")
            continue
        wholes = seen.grads
        into = objects(backward["input"])
        jury.same(f"{name} backward.input", into, wholes)
        jury.missing(f"{name} backward.input", into, {k: g for k, g in wholes.items() if g.any()})
        if gradients.OWN:
            shares = contributions(seen.again, seen.args, seen.kwargs, seen.grads)
            jury.same(f"{name} backward.output", objects(backward["output"]), shares, 1e-4)


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
    model, batch = built("tied")
    with opened(tmp_path, level="mix", task="tensor", step=[0]) as debugger:
        debugger.start(model)
        model(*batch)
        debugger.stop()
        debugger.step()
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
