"""Every network that these tests have, in PyNative: its bits, and its records beside values taken without Probe.

The gradients are taken in another way than Probe takes them: a tensor of zeros is added to each place of what a Cell is
given and of what it returns, and MindSpore differentiates by these. So each place has the share that is its own.
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
from mindspore import nn
from mindspore_dumping import load, opened
from mindspore_witness import Place, array, same, separated, tensors, witnessed
from probe_mindspore.hooks import gradients

pytestmark = [pytest.mark.usefixtures("pynative"), pytest.mark.filterwarnings("ignore:Probe recorded")]

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


def trained(model: nn.Cell, batch: tuple[Any, ...]) -> list[bytes]:
    """The bits of the loss and of all gradients, those of the batch as well."""
    floats = tuple(i for i, t in enumerate(batch) if t.dtype == ms.float32) or None
    of = ms.value_and_grad(lambda *batch: loss_of(model, batch), floats, model.trainable_params())
    return [array(t).tobytes() for _, t in tensors(of(*batch))]


#: What 2.7 runs too.
ON_BOTH = ("zoo gpt", "zoo lstm", "graph jitted", "reference")
#: `mix` records all that L0 does. Level L0 is for those whose Cells call functions that are replaced at mix.
ALONE = ("zoo gpt", "zoo residual", "zoo branches", "reference")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        *(pytest.param(n, "mix", marks=[pytest.mark.once] * (n not in ON_BOTH)) for n in NETWORKS),
        *(pytest.param(n, "L0", marks=pytest.mark.once) for n in ALONE),
    ],
)
def test_bits_and_records(name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unwatched = trained(*built(name))
    model, batch = built(name)
    with opened(tmp_path, level=level, task="tensor", step=[0]) as debugger:
        debugger.start(model)
        watched = trained(model, batch)
        debugger.stop()
        debugger.step()
    assert unwatched == watched
    dump = tmp_path / "dump"
    dump = dump / "pynative" if (dump / "pynative").is_dir() else dump
    validate(rank_dir(dump))
    found = {n: r for n, r in records(dump).items() if n.startswith("Cell.")}
    model, batch = built(name)
    with witnessed(model) as calls:
        trained(model, batch)
    model, batch = built(name)
    _without_recomputation(model, monkeypatch)
    shares = separated(model, lambda: loss_of(model, batch))
    wrong: list[str] = []
    judged = 0
    for call, seen in calls.items():
        record = found[call]
        given = {slot: array(t) for slot, t in tensors(seen.slots)}
        for side, truth, values in (
            ("input", given, [*record["input_args"], *record["input_kwargs"].values()]),
            ("output", {slot[1:]: a for slot, a in seen.gave.items()}, record["output"]),
        ):
            there = objects(values)
            wrong += [f"{call} {side} {slot}" for slot in there.keys() ^ truth.keys()]
            wrong += [f"{call} {side} {slot}" for slot, a in truth.items() if not _is(dump, there[slot], a)]
        back = found.get(call.replace(".forward.", ".backward."))
        if "_recompute_cell" in call:  # MindSpore's own Cell around one that is computed again
            continue
        if back is None:
            told = any(call.rpartition(".forward.")[0] in entry["what"] for entry in report(dump)["not_seen"])
            wrong += [f"{call}: no backward record"] if seen.grads and not told else []
            continue
        places = shares.get(call) or shares[_first(call, calls)]
        for side in ("input", "output"):
            for slot, leaf in objects(back[side]).items():
                judged += 1
                verdict = _verdict(dump, side, slot, leaf, places, seen, back)
                wrong += [f"{call} backward.{side} {slot}: {verdict}"] if verdict else []
        for (side, *slot), place in places.items():
            came = seen.grads if side == "input" else seen.wholes
            if place.share.any() and tuple(slot) in came.keys() - objects(back[side]).keys():
                wrong.append(f"{call} backward.{side} {slot}: nothing recorded")
    assert not wrong, f"{len(wrong)} of {judged}: " + "\n".join(wrong[:20])
    assert judged or name in ALL_COMPILED


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
