"""Train the networks of the zoo in graphs, with Probe and without, and hold their records against PyNative's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore_zoo as zoo
import numpy as np
from documents import Json, records, report
from graph_siblings import ALL
from mindspore_dumping import load, opened
from probe_mindspore.hooks.autograd import GRAPH

STEPS = 3
CHANCES = 6
#: Where random numbers are drawn: PyNative and graphs draw others.
DRAWN = ("dropped", "gpt", "vae")
#: Which PyNative makes by Cells of MindSpore's own, with calls more.
RECOMPUTED = ("recomputed", "recompute function", "allrecomputed")
#: Cells of whose inputs nothing is differentiated: a graph leaves the gradients of their outputs out.
UNNEEDED = ("OneHot.backward",)
#: Part of a record's name and a place -> where PyNative has something else than a graph.
OTHERS = (
    # An output that the Cell itself uses again: with what comes back through that.
    ("LSTMCell.backward", ".input.1"),
    # A state of zeros to begin with is a constant to the compiler.
    ("LSTMCell.backward.0", ".output.1.0"),
    ("LSTMCell.backward.0", ".output.1.1"),
    # What the Cell is given by way of other arguments: a graph has no gradient of such a slot.
    ("_DynamicLSTMCPUGPU.backward", ".output"),
)


@cache
def _plain(name: str, variant: str) -> list[zoo.Trace]:
    """Runs without Probe; MindSpore's own kernels now and then differ in a last bit (by memory alignment)."""
    return [zoo.train(ALL[name], variant, steps=STEPS)]


def folder_of(path: Path, variant: str) -> Path:
    """Where the records of what is compiled lie."""
    return path / "dump" if variant.startswith("graph_") else path / "dump" / "graph"


def changed(name: str, variant: str, path: Path, **options: Any) -> list[str]:
    """The names of the losses, gradients and weights that are others with Probe."""
    plain = _plain(name, variant)
    with opened(path, level="L0", **options) as debugger:
        watched = zoo.train(ALL[name], variant, debugger, steps=STEPS)
    while found := [n for n in watched if all(n in zoo.differences(one, watched) for one in plain)]:
        if len(plain) == CHANCES:
            break
        plain.append(zoo.train(ALL[name], variant, steps=STEPS))
    return found


def uncopied(folder: Path, steps: int = STEPS) -> list[str]:
    """What the reports say of copies that did not give the run's bits, and of faults."""
    told = []
    for step in range(steps):
        found = report(folder, step)
        told += [f"{step} {name}: {entry}" for name, entry in found["graphs"].items() if entry["differs"]]
        told += [f"{step} {fault}" for fault in found["faults"]]
    return told


def otherwise(one: Path, other: Path, step: int = 0) -> list[str]:
    """What the records of two dumps of one network, compiled and not, do not have in common.

    A jitted piece may have gradients of its inputs that PyNative, where nobody asks for them, does not compute.
    """
    first, second = records(one, step), records(other, step)
    lacking = {name for name in first.keys() ^ second.keys() if name in second or ".backward." not in name}
    if one.name == "graph":  # the gradients of Cells that were not called are with those that PyNative ran
        lacking -= {name for name in records(one.parent, step) if "parameters_grad" in name}
    lacking = {name for name in lacking if not any(part in name for part in UNNEEDED)}
    told = sorted(name for name in lacking if GRAPH or _came_back(second.get(name, {})))
    for name in first.keys() & second.keys():
        a, b = (dict(_tensors(found[name])) for found in (first, second))
        told += [
            f"{name} {place}"
            for place in b
            if not (place in a and _near(one, other, step, a[place], b[place]))
            and not _is_shared(one, other, step, place, a, b)
            and not any(part in name and place.startswith(where) for part, where in OTHERS)
            and (
                GRAPH or ".backward." not in name or not place.startswith(".output")
            )  # MindSpore 2.7 tells no shares
        ]
    return told


def _tensors(value: Json, place: str = "") -> Any:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield place, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(item, f"{place}.{key}")


def _came_back(record: Json) -> bool:
    """Whether a gradient came to a call; MindSpore 2.7 has those of its inputs by way of others too."""
    return "input" not in record or any(_tensors(record["input"]))


def _is_shared(one: Path, other: Path, step: int, place: str, a: Any, b: Any) -> bool:
    """Whether one tensor was given in several places: PyNative has the sum in each of them, and a graph the terms."""
    if not place.startswith(".output") or "data_name" not in b[place]:
        return False
    total = load(other, b[place], step)
    same = [at for at, found in b.items() if found.get("data_crc32") == b[place]["data_crc32"]]
    terms = [load(one, a[at], step) for at in same if at in a and "data_name" in a[at]]
    return len(same) > 1 and len(same) == len(terms) and bool(np.allclose(sum(terms), total, 1e-4, 1e-5))


def _near(one: Path, other: Path, step: int, a: Json, b: Json) -> bool:
    if a["dtype"] != b["dtype"] or a["shape"] != b["shape"] or ("data_name" in a) != ("data_name" in b):
        return False
    if "data_name" not in a:
        return True
    x, y = (load(folder, tensor, step) for folder, tensor in ((one, a), (other, b)))
    scale = float(np.abs(np.asarray(y, np.float64)).max(initial=1e-6))
    return bool(np.allclose(x, y, rtol=1e-4, atol=1e-5 * max(scale, 1.0)))


def reset() -> None:
    """PyNative again, whatever a run has left."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
