"""Write small dumps as plain JSON, and read them again with the standard library alone: the truth of an export."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Place = tuple[int, int, str, str]  # step, rank, record, slot
LAYERS = ("layers.0.mlp", "layers.1.mlp", "head")


def tensor(
    draw: random.Random, shape: list[int], dtype: str = "torch.float32", **keys: Any
) -> dict[str, Any]:
    high = draw.uniform(0, 9)
    numbers = {
        "Max": high,
        "Min": -draw.uniform(0, 9),
        "Mean": draw.uniform(-1, 1),
        "Norm": high * draw.uniform(2, 3),
    }
    return {"type": "torch.Tensor", "dtype": dtype, "shape": shape, **numbers, "requires_grad": False, **keys}


def records(draw: random.Random, step: int, rank: int) -> dict[str, Any]:
    """The records of a step: modules with a function inside, their backward calls, and the parameters' gradients."""
    same = random.Random(f"weights {step}")
    found: dict[str, Any] = {}
    for n, layer in enumerate(LAYERS):
        weight = tensor(same, [8, 8])
        if layer == "head" and rank == 1:
            weight["Norm"] += 0.25 * (step + 1)  # this rank is another
        x, y = tensor(draw, [2, 8]), tensor(draw, [2, 8], "torch.float16")
        if layer == "head" and step == 1:
            y |= {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
            y |= {"nan_count": 3, "posinf_count": 0, "neginf_count": 1, "finite_max": 1.5, "finite_min": -2.0}
        if layer == "layers.1.mlp":
            y |= {"Max": 60000.0 + step}
        eps = {"type": "float", "value": 1e-5 if n else 1e-6}
        found[f"Functional.layer_norm.{n}.forward"] = {
            "input_args": [x, [8], None, None, eps],
            "input_kwargs": {},
            "output": [y],
        }
        found[f"Module.{layer}.MLP.forward.0"] = {
            "input_args": [x, {"a": [{"type": "int", "value": 2**70}, True]}],
            "input_kwargs": {"mask": None, "scale": {"type": "float", "value": math.inf}, "rest": {}},
            "parameters": {"weight": weight, "bias": tensor(same, [8])},
            "output": [y],
        }
    for layer in reversed(LAYERS):
        again = {"input": [tensor(draw, [2, 8])], "output": [None]}
        found[f"Module.{layer}.MLP.backward.0"] = {
            "input": [tensor(draw, [2, 8])],
            "output": [tensor(draw, [2, 8]), None],
            "later_passes": [again] if layer == "head" else [],
        }
        grads = {"weight": [tensor(draw, [8, 8])], "bias": [tensor(draw, [8])]}
        found[f"Module.{layer}.MLP.parameters_grad"] = grads
    return found


def write(folder: Path, steps: int = 3, ranks: int = 2, seed: int = 0) -> Path:
    """Write a dump of several steps and ranks in the layout of msprobe."""
    for step in range(steps):
        for rank in range(ranks):
            draw = random.Random(f"{seed} {step} {rank}")
            put(folder / f"step{step}" / f"rank{rank}", records(draw, step, rank))
    return folder


def put(place: Path, data: dict[str, Any], **header: Any) -> Path:
    """Write one rank of one step: its dump.json, and for each record a line in stack.json and its module."""
    place.mkdir(parents=True)
    document = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, **header}
    (place / "dump.json").write_text(json.dumps({**document, "data": data}))
    modules = [name for name in data if name.startswith("Module.") and ".forward." in name]
    parents: dict[str, str | None] = dict.fromkeys(modules)
    functions = [name for name in data if name.startswith("Functional.")]
    parents |= dict(zip(functions, modules, strict=False))
    (place / "construct.json").write_text(json.dumps(parents))
    lines = {
        str(i): [
            [name],
            [
                f"File /home/u/model.py, line {i}, in forward, \n y = f(x{i})",
                "File /home/u/t.py, line 1, in <module>, \n go()",
            ],
        ]
        for i, name in enumerate(data)
        if "backward" not in name and "grad" not in name
    }
    (place / "stack.json").write_text(json.dumps(lines))
    return place


def is_tensor(node: Any) -> bool:
    return (
        isinstance(node, dict) and isinstance(node.get("dtype"), str) and isinstance(node.get("shape"), list)
    )


def below(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value below a node that is no list and no object, tensors and other leaves being values; by recursion."""
    if is_tensor(node) or not isinstance(node, list | dict):
        yield path, node
    elif isinstance(node, dict) and isinstance(node.get("type"), str):
        yield path, node
        yield from (
            (p, n) for key, part in node.items() for p, n in below(part, (*path, key)) if is_tensor(n)
        )
    elif not node:
        yield path, node
    else:
        for key, part in enumerate(node) if isinstance(node, list) else node.items():
            yield from below(part, (*path, key))


def ranks_of(dump: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """(name of the folder, path, the document) of every dump.json and debug.json, read by the standard library."""
    for name in ("dump.json", "debug.json"):
        for path in sorted(dump.rglob(name)):
            yield path.parent.name, path.parent, json.loads(path.read_text())


def tensors_of(dump: Path) -> dict[Place, dict[str, Any]]:
    """Each tensor of a dump by step, rank, record and slot, in the order of the files."""
    found = {}
    for folder, path, document in ranks_of(dump):
        step, rank = int(path.parent.name.removeprefix("step")), int(folder.removeprefix("rank") or 0)
        for record, value in document["data"].items():
            for keys, node in below(value):
                if is_tensor(node):
                    found[step, rank, record, ".".join(map(str, keys))] = node
    return found
