"""Write what a run of many ranks in tensor, pipeline, data and expert parallelism leaves, as JSON or Parquet.

`python -m bench.many_ranks.generate OUT --ranks 1000 --form json --fault weight`. The names, shapes and
collectives are those of a real run of 8 processes (`template.py`), the numbers are drawn by a seed: what was the same
on the real ranks is the same here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import frozen
from probe_analysis.export.columns import TABLES
from probe_analysis.export.export import export

from .template import FILE, NUMBERS

#: Ranks -> tensor parallel, pipeline, data parallel.
GRIDS = {
    32: (4, 2, 4),
    100: (4, 5, 5),
    128: (4, 4, 8),
    1000: (8, 5, 25),
    3000: (8, 5, 75),
    10000: (8, 10, 125),
}
LAYERS = 8
HEAD = {
    "task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "format_version": "1.0",
    "tool": "probe-torch 0.1.0",
}  # fmt: skip
_SLOT = re.compile(r'"contents":(\d+)|"group_ranks":"(\w+)"')
WEIGHT, GRADIENT = "Module.layers.0.gate.Linear.forward.0", "Module.layers.0.gate.Linear.parameters_grad"


@frozen(slots=False, eq=False)
class Stage:
    """Hold what all ranks of a stage of the pipeline write but the numbers."""

    records: dict[str, Any]
    parents: dict[str, str | None]
    axes: list[str]
    numbers: list[list[float]]
    stack: dict[str, Any]

    @cached_property
    def pieces(self) -> list[str]:
        """The text of the records, with the contents of tensors and the groups in every second and third place."""
        lines = (
            f"{json.dumps(name)}: {json.dumps(x, separators=(',', ':'))}" for name, x in self.records.items()
        )
        return _SLOT.split(",\n".join(lines))

    @cached_property
    def contents(self) -> list[int]:
        return [int(x) for x in self.pieces[1::3] if x is not None]

    @cached_property
    def in_update(self) -> list[bool]:
        """Whether each tensor is of a record of the optimizer."""
        lines = (
            self.parents.get(name) == "optimizer"
            for name, x in self.records.items()
            for _ in _SLOT.findall(json.dumps(x, separators=(",", ":")))
            if _[0]
        )
        return [*lines]

    @cached_property
    def base(self) -> np.ndarray[Any, Any]:
        return np.array(self.numbers)

    @cached_property
    def by_axes(self) -> dict[str, np.ndarray[Any, Any]]:
        return {each: np.flatnonzero([x == each for x in self.axes]) for each in sorted({*self.axes})}

    def contents_of(self, record: str, *keys: Any) -> int:
        found = self.records[record]
        for key in keys:
            found = found[key]
        return int(found["contents"])


def stages(layers: int) -> list[Stage]:
    """The first stage, and one of the others, with so many layers each: what is inside of more is left out."""
    found = []
    for stage in json.loads(gzip.decompress(FILE.read_bytes())):
        gone = re.compile(rf"^Module\.layers\.([{layers}-9])\.")
        parents = stage["parents"]
        keep = {
            n: x
            for n, x in stage["records"].items()
            if not (gone.match(n) or gone.match(parents.get(n) or ""))
        }
        for name, record in keep.items():
            if "all_to_all" in name:
                keep[name] = json.loads(
                    json.dumps(record).replace('"group_ranks": "dp"', '"group_ranks": "ep"')
                )
        found.append(Stage(**stage | {"records": keep}))
    return found


@frozen
class Run:
    """Hold what a run is. fault: planted into `odd`, a rank, or its group of data parallel ones."""

    ranks: int
    layers: int = LAYERS
    seed: int = 0
    fault: str = ""
    odd: int = 0

    @property
    def grid(self) -> tuple[int, int, int]:
        return GRIDS[self.ranks]

    def at(self, rank: int) -> tuple[int, int, int]:
        """Tensor parallel, data parallel and pipeline place: Megatron's order."""
        tp, _, dp = self.grid
        return rank % tp, rank // tp % dp, rank // (tp * dp)

    @property
    def experts(self) -> int:
        """How many ranks share the experts: the most, up to 8, that divide the data parallel ones, some of each."""
        dp = self.grid[2]
        return max(n for n in range(1, min(8, dp // 2) + 1) if dp % n == 0) if dp > 3 else 1

    def groups(self, rank: int) -> dict[str, list[int]]:
        tp, _, dp = self.grid
        t, d, p = self.at(rank)
        first, own = tp * dp * p, d - d % self.experts
        return {
            "tp": [first + tp * d + n for n in range(tp)],
            "dp": [first + tp * n + t for n in range(dp)],
            "ep": [first + tp * n + t for n in range(own, own + self.experts)],
        }

    def numbers(self, stage: Stage, rank: int, step: int) -> np.ndarray[Any, Any]:
        """The numbers of the tensors of a rank, in the order of the records."""
        t, d, p = self.at(rank)
        place = {"t": t, "d": d, "e": d % self.experts}
        scale = np.ones(len(stage.axes))
        for axes, where in stage.by_axes.items():
            if axes != "w":
                key = [self.seed, step, p, *axes.encode(), *(place[x] for x in axes)]
                scale[where] += np.random.default_rng(key).random(len(where)) / 8
        weight = stage.contents_of(WEIGHT, "parameters", "weight")
        if self.fault == "weight" and rank == self.odd:
            scale[weight] *= 1.0 + 2**-10
        found = stage.base[stage.contents] * scale[stage.contents, None]
        if self.fault == "unreduced" and (t, p) == (self.at(self.odd)[0], self.at(self.odd)[2]):
            own = stage.contents_of(GRADIENT, "weight", 0)
            reduced = self._reduced(stage)
            which = np.array(stage.in_update) & (np.array(stage.contents) == reduced)
            found[which] = stage.base[own] * scale[own]
        return found

    @staticmethod
    def _reduced(stage: Stage) -> int:
        """The contents of the gradient of `GRADIENT` that all data parallel ranks have, the optimizer's."""
        own = stage.contents_of(GRADIENT, "weight", 0)
        for name, record in stage.records.items():
            if "all_reduce" in name and record["input_args"][0].get("contents") == own:
                return int(record["output"][0]["contents"])
        raise LookupError(GRADIENT)

    def count(self, rank: int, total: int) -> int:
        """How many records a rank comes to write."""
        return total // 2 if self.fault == "stopped" and rank == self.odd else total

    def steps(self, rank: int) -> Iterable[int]:
        return range(1 if self.fault == "behind" and rank == self.odd else 2 if self.fault == "behind" else 1)


def write_json(run: Run, out: Path) -> None:
    shapes = stages(run.layers)
    for rank, step in ((r, s) for r in range(run.ranks) for s in run.steps(r)):
        _write_rank(run, shapes[0 if run.at(rank)[2] == 0 else 1], rank, step, out)


def _write_rank(run: Run, stage: Stage, rank: int, step: int, out: Path, *, words: bool = False) -> None:
    """Write the dump of one rank. words: whether groups stay words."""
    folder = out / f"step{step}" / f"rank{rank}"
    folder.mkdir(parents=True)
    pieces = [*stage.pieces]
    numbers, groups = iter(run.numbers(stage, rank, step).tolist()), run.groups(rank)
    for i in range(1, len(pieces), 3):
        word = pieces[i + 1]
        if word is None:
            pieces[i] = ",".join(f'"{key}":{x!r}' for key, x in zip(NUMBERS, next(numbers), strict=True))
            pieces[i + 1] = ""
        else:
            group = word if words else groups[word]
            pieces[i], pieces[i + 1] = "", f'"group_ranks":{json.dumps(group, separators=(",", ":"))}'
    lines = "".join(pieces).split(",\n")
    some = lines[: run.count(rank, len(lines))]
    header = json.dumps(HEAD | {"rank": rank, "step": step}, separators=(",", ":"))[:-1]
    (folder / "dump.json").write_text(header + ',\n"data": {\n' + ",\n".join(some) + "\n}}\n")
    (folder / "construct.json").write_text(json.dumps(stage.parents))
    (folder / "stack.json").write_text(json.dumps(stage.stack))
    (folder / "report.json").write_text(json.dumps(_report(rank, step, len(some), len(lines))))


def write_parquet(run: Run, out: Path) -> None:
    """Write the tables of `probe export`: those of one rank of each stage, with the numbers and groups of each rank."""
    shapes = stages(run.layers)
    made = [_tables(run, stage, rank) for stage, rank in zip(shapes, (0, run.ranks - 1), strict=True)]
    for rank, step in ((r, s) for r in range(run.ranks) for s in run.steps(r)):
        which = 0 if run.at(rank)[2] == 0 else 1
        stage, tables = shapes[which], made[which]
        total = len(stage.records)
        count = run.count(rank, total)
        report = json.dumps(_report(rank, step, count, total))
        label, groups = f"step{step}/rank{rank}", run.groups(rank)
        for name, table in tables.items():
            if count < total and name != "runs":
                table = table.filter(pc.less(table["call_order"], count))
            cells: dict[str, Any] = {"run": pa.array([label] * len(table))}
            if name == "tensors":
                numbers = run.numbers(stage, rank, step)
                where = np.flatnonzero(tables["tensors"]["finite"].to_numpy() & _is_float(tables["tensors"]))
                where = where[: np.searchsorted(where, len(table))]
                for n, key in enumerate(NUMBERS):
                    column = table[key.lower()].to_numpy().copy()
                    column[where] = numbers[: len(where), n]
                    cells[key.lower()] = pa.array(column, from_pandas=True)
            elif name == "arguments":
                texts = table["json"].to_pylist()
                words = {f'"{word}"': json.dumps(ranks) for word, ranks in groups.items()}
                own = [_WORD.sub(lambda found, words=words: words[found[0]], text) for text in texts]
                cells["json"] = pa.array(own)
            elif name == "runs":
                header = json.dumps(HEAD | {"rank": rank, "step": step})
                cells |= {"header": pa.array([header]), "report": pa.array([report])}
            for key, cell in cells.items():
                at = table.schema.get_field_index(key)
                table = table.set_column(at, table.schema.field(at), cell)
            file = out / name / f"step={step}" / f"rank={rank}" / f"rank{rank}.parquet"
            file.parent.mkdir(parents=True)
            pq.write_table(table, file, compression="zstd")


_WORD = re.compile(r'"(tp|dp|ep)"')


def _is_float(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.array(["float" in x for x in table["original_dtype"].to_pylist()])


def _tables(run: Run, stage: Stage, rank: int) -> dict[str, pa.Table]:
    """The tables of one rank, by `probe export`; the groups are words."""
    with tempfile.TemporaryDirectory() as folder:
        _write_rank(run, stage, rank, 0, Path(folder) / "dump", words=True)
        export(Path(folder) / "dump", Path(folder) / "out")
        files = {name: next((Path(folder) / "out" / name).rglob("*.parquet")) for name in TABLES}
        return {name: pq.ParquetFile(file).read() for name, file in files.items()}


def _report(rank: int, step: int, count: int, total: int) -> dict[str, Any]:
    known: dict[str, Any] = {
        "format_version": "1.0",
        "state": "complete" if count == total else "open",
        "files": {},
    }
    known |= {"header": HEAD | {"rank": rank, "step": step}, "journal": None, "counts": {}, "records": count}
    return known | {"tensors": 0, "tensor_files": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, choices=GRIDS, default=128)
    parser.add_argument("--layers", type=int, default=LAYERS, help="1: 100 records a rank, 8: 500")
    parser.add_argument("--form", choices=("json", "parquet"), default="json")
    parser.add_argument("--fault", choices=("", "weight", "unreduced", "stopped", "behind"), default="")
    parser.add_argument("--odd", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    run = Run(given.ranks, given.layers, given.seed, given.fault, given.odd)
    (write_json if given.form == "json" else write_parquet)(run, given.out)


if __name__ == "__main__":
    main()
