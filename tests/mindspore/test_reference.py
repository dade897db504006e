"""Against msprobe 26.2 on the reference network: no record that it has is missing, and the numbers agree."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import mindspore as ms
import pytest
import reference_cells
from mindspore_dumping import Json, collected, number, rank_dir, strict
from probe_mindspore.hooks.autograd import GRAPH

CORPUS = Path(__file__).parents[1] / "format" / "corpus" / "mindspore"
# What msprobe 26.2 calls otherwise than the documents of 8.3, which we follow.
LEVELS = {"L0": "L0_statistics", "L1": "L1_statistics", "mix": "mix_statistics"}
PLACES = ("input_args", "input_kwargs", "input", "output", "parameters")


def ours_of(name: str) -> str:
    return name.removesuffix(".0") if name.endswith(".parameters_grad.0") else name


def msprobe(level: str) -> dict[str, Any]:
    (rank,) = (CORPUS / LEVELS[level] / "dump" / "step0").iterdir()
    return {file: json.loads((rank / f"{file}.json").read_text()) for file in ("dump", "stack", "construct")}


@cache
def probe(level: str) -> Path:
    folder = Path(mkdtemp())
    ms.set_seed(1)
    net = reference_cells.Net()
    net.set_train()
    x, y = reference_cells.data()
    forward = ms.value_and_grad(lambda x, y: net(x, y), None, net.trainable_params())
    with collected(folder, net, level=level):
        forward(x, y)
    return rank_dir(folder / "dump")


def flat(value: Json, path: str = "") -> dict[str, Json]:
    """Every tensor object below, by its place."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            return {path: value}
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, f"{path}.{i}").items()}
    return {}


@pytest.mark.parametrize("level", LEVELS)
def test_no_record_of_msprobe_is_missing(level: str) -> None:
    ours = strict(probe(level) / "dump.json")["data"]
    missing = [name for name in msprobe(level)["dump"]["data"] if ours_of(name) not in ours]
    assert not missing


def agree(got: Json, want: Json) -> bool:
    """To 1e-5 of each value; Mean of numbers that cancel out has no digits of its own, only the tensor's."""
    if any(got[key] != want[key] for key in ("type", "dtype", "shape")):
        return False
    if want["Norm"] is None:
        return True
    size = max(abs(want["Max"]), abs(want["Min"]))
    wanted = {**want, "Norm": abs(want["Norm"])}  # msprobe's has a sign where there are no dimensions
    return all(
        math.isclose(number(got[key]), wanted[key], rel_tol=1e-5, abs_tol=1e-7 * size * (key == "Mean"))
        for key in ("Max", "Min", "Mean", "Norm")
    )


# Inner returns (y, y.sum()): we record the whole gradient of the tensor y, with what comes back through the
# sum, msprobe that of the output alone. The sum adds its own gradient to each element.
SUMMED = ("Cell.inner.Inner.backward.0", ".input.0")


def shifted(leaf: Json, by: float) -> Json:
    count = math.prod(leaf["shape"])
    square = leaf["Norm"] ** 2 + 2 * by * leaf["Mean"] * count + by * by * count
    return {
        **leaf,
        **{key: leaf[key] + by for key in ("Max", "Min", "Mean")},
        "Norm": math.sqrt(square),
    }


@pytest.mark.parametrize("level", LEVELS)
def test_the_numbers_agree(level: str) -> None:
    ours, theirs = strict(probe(level) / "dump.json")["data"], msprobe(level)["dump"]["data"]
    wrong, compared = [], 0
    for name, record in theirs.items():
        if (
            not GRAPH and "backward" in name
        ):  # 2.7 tells the whole gradient of a tensor, not the share of one call
            continue
        mine = flat(ours[ours_of(name)])
        for place, leaf in flat(record).items():
            compared += 1
            places = [place]
            if name.startswith("Primitive.") and place.startswith(".output") and name.endswith("backward"):
                # msprobe lists these in the order in which they came, not in that of the arguments
                places = [p for p in mine if p.startswith(".output")]
            if (name, place) == SUMMED:
                leaf = shifted(leaf, flat(record)[".input.1"]["Max"])
            found = next((p for p in places if p in mine and agree(mine[p], leaf)), None)
            if found is None:
                wrong.append(f"{name}{place}: {mine.get(place)}, not {leaf}")
            elif len(places) > 1:
                del mine[found]
    assert not wrong, f"{len(wrong)} of {compared}: " + "\n".join(wrong[:12])
    assert compared > 60


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_same_parents(level: str) -> None:
    ours, theirs = strict(probe(level) / "construct.json"), msprobe(level)["construct"]
    other = {
        name: (ours.get(ours_of(name)), parent)
        for name, parent in theirs.items()
        # msprobe loses the parent of what runs in a Cell that is given a dict
        if parent is not None and ours.get(ours_of(name)) != parent
    }
    assert not other
