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

STEPS = 3
#: Where random numbers are drawn: PyNative and graphs draw others.
DRAWN = ("dropped", "gpt")
#: Part of a record's name and a place -> what PyNative has there: the gradient of an output that the Cell itself uses
#: again, with what comes back through that use; in a graph without.
USED_AGAIN = (("LSTMCell.backward", ".input.1"),)


@cache
def _plain(name: str, variant: str) -> zoo.Trace:
    return zoo.train(ALL[name], variant, steps=STEPS)


def folder_of(path: Path, variant: str) -> Path:
    """Where the records of what is compiled lie."""
    return path / "dump" if variant.startswith("graph_") else path / "dump" / "graph"


def changed(name: str, variant: str, path: Path, **options: Any) -> list[str]:
    """The names of the losses, gradients and weights that are others with Probe."""
    plain = _plain(name, variant)
    with opened(path, level="L0", **options) as debugger:
        watched = zoo.train(ALL[name], variant, debugger, steps=STEPS)
    return zoo.differences(plain, watched)


def uncopied(folder: Path) -> list[str]:
    """What the reports say of copies that did not give the run's bits, and of faults."""
    told = []
    for step in range(STEPS):
        found = report(folder, step)
        told += [f"{step} {name}: {entry}" for name, entry in found["graphs"].items() if entry["differs"]]
        told += [f"{step} {fault}" for fault in found["faults"]]
    return told


def otherwise(one: Path, other: Path, step: int = 0) -> list[str]:
    """What the records of two dumps of one network, compiled and not, do not have in common.

    A jitted piece may have gradients of its inputs that PyNative, where nobody asks for them, does not compute.
    """
    first, second = records(one, step), records(other, step)
    told = sorted(first.keys() ^ second.keys())
    for name in first.keys() & second.keys():
        a, b = (dict(_tensors(found[name])) for found in (first, second))
        told += [f"{name} {place}" for place in sorted(b.keys() - a.keys())]
        told += [
            f"{name} {place}"
            for place in a.keys() & b.keys()
            if not _near(one, other, step, a[place], b[place])
            and not any(part in name and place == where for part, where in USED_AGAIN)
        ]
    return told


def _tensors(value: Json, place: str = "") -> Any:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield place, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _tensors(item, f"{place}.{key}")


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
