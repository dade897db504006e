"""Make `real.json.gz` of a run by `real.py`: `python -m bench.many_ranks.template FOLDER`.

What it keeps of each stage of the pipeline is what its first rank wrote, its records with the numbers taken out. Each
tensor has the number of its contents, so that what was the same tensor is the same again, and the axes over which the
real ranks held another one: t (tensor parallel), d (data parallel), e (the experts); w for what all ranks held alike.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NUMBERS = ("Max", "Min", "Mean", "Norm")
FILE = Path(__file__).with_name("real.json.gz")
#: (tensor parallel, data parallel) of the ranks of a stage, in their order.
_PLACES = ((0, 0), (1, 0), (0, 1), (1, 1))


def tensors(node: Any) -> Iterator[dict[str, Any]]:
    """The tensors below a node, in the order of the file."""
    if isinstance(node, list):
        for each in node:
            yield from tensors(each)
    elif isinstance(node, dict):
        if "dtype" in node and "shape" in node:
            yield node
        else:
            yield from tensors([*node.values()])


def _axes(numbers: list[tuple[float, ...]], everywhere: set[tuple[float, ...]], expert: bool) -> str:
    if len({*numbers}) == 1 and numbers[0] in everywhere:
        return "w"
    t = numbers[0] != numbers[1] or numbers[2] != numbers[3]
    d = numbers[0] != numbers[2] or numbers[1] != numbers[3]
    return "t" * t + ("e" if expert else "d") * d


def main(folder: Path) -> None:
    ranks = [json.loads((folder / f"step0/rank{n}/dump.json").read_text())["data"] for n in range(8)]
    seen = [{tuple(x.get(k) for k in NUMBERS) for x in tensors(rank)} for rank in ranks]
    everywhere = set.intersection(*seen)
    stages = []
    for first in (0, 4):
        where = folder / f"step0/rank{first}"
        parents = json.loads((where / "construct.json").read_text())
        four = ranks[first : first + 4]
        known: dict[tuple[Any, ...], int] = {}
        axes: list[str] = []
        numbers: list[list[float]] = []
        for name in four[0]:
            whose = [*map(id, tensors(four[0][name].get("parameters")))] if ".experts." in name else []
            for places in zip(*(tensors(rank[name]) for rank in four), strict=True):
                each = [tuple(x.get(k) for k in NUMBERS) for x in places]
                if not all(type(x) is float for some in each for x in some):
                    continue
                key = tuple(each)
                if key not in known:
                    known[key] = len(known)
                    numbers.append([float(f"{x:.3g}") for x in each[0]])
                    axes.append("")
                expert = parents.get(name) == "optimizer" or id(places[0]) in whose
                own = _axes(each, everywhere, expert)
                at = known[key]
                axes[at] = own if "e" in own or not axes[at] else axes[at]
                items = [("contents", at) if k == "Max" else (k, x) for k, x in places[0].items()]
                places[0].clear()
                places[0].update((k, x) for k, x in items if k not in NUMBERS)
        for record in (
            r for name, r in four[0].items() if name.endswith(".forward") and "Distributed" not in name
        ):
            took, gave = (
                [x["contents"] for x in tensors(record.get(k)) if "contents" in x]
                for k in ("input_args", "output")
            )
            if took and not any(
                "d" in axes[at] for at in took
            ):  # what a function returns follows from what it got
                for at in gave:
                    axes[at] = axes[at].replace("d", "e")
        for name in ("Module.embedding.Embedding.forward.0", "Module.head.Linear.forward.0"):
            for each in tensors(four[0].get(name, {}).get("parameters")):
                axes[each["contents"]] = "t"  # as Megatron cuts the words
        text = json.dumps(four[0])
        for word, some in (("tp", [first, first + 1]), ("dp", [first, first + 2])):
            text = text.replace(f'"group_ranks": {some}', f'"group_ranks": "{word}"')
        stack = json.loads((where / "stack.json").read_text())
        stages.append(
            {
                "records": json.loads(text),
                "parents": parents,
                "axes": axes,
                "numbers": numbers,
                "stack": stack,
            }
        )
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        file.write(json.dumps(stages, separators=(",", ":")).encode())
    print(FILE, FILE.stat().st_size, [len(stage["records"]) for stage in stages])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
