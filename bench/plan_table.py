"""Print msprobe's table of the sizes of tensor dumps of Llama-2 beside what `probe_torch.plan` says (docs/plan.md).

Run `python -m bench.plan_table`. The sizes are those of one of eight ranks that share the layers (pipeline), on
average: an eighth of the whole model's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from attrs import evolve
from probe_torch import plan

from .llama import LLAMA_7B, LLAMA_13B, Llama, LlamaSize

__all__ = ["main"]

RANKS, LENGTH = 8, 4096
BATCHES = (1, 2, 3)
# Gigabytes for one card, from msprobe's page on the volume of data; None where the page breaks off.
THEIRS: dict[str, dict[str, tuple[float | None, ...]]] = {
    "7B": {"L0": (7.8, 16, 24), "L1": (300.8, 480, 640), "mix": (313.6, 512, 672)},
    "13B": {"L0": (13, 25, 37), "L1": (440, 720, 960), "mix": (480, 720, None)},
}
SIZES = {"7B": evolve(LLAMA_7B, fused=False), "13B": evolve(LLAMA_13B, fused=False)}


def planned(size: LlamaSize, level: str, batch: int, *, optimizer: bool) -> tuple[float, float]:
    """Gigabytes of one rank: with a file for each tensor, and with equal contents written once."""
    with torch.device("meta"):
        model = Llama(size).to(torch.bfloat16)
        ids = torch.zeros(batch, LENGTH + 1, dtype=torch.int64)
    master = torch.optim.AdamW(model.parameters()) if optimizer else None
    found = plan(
        model, {"level": level, "task": "tensor", "dump_path": "never_written"}, ids, optimizer=master
    )
    return found.bytes_unshared / RANKS / 1e9, found.bytes / RANKS / 1e9


def rows() -> Iterator[str]:
    heads = ["model", "level", "batch", "msprobe's table", "a file for each tensor", "off"]
    heads += ["without parameters and optimizer", "off", "equal contents written once"]
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, levels in THEIRS.items():
        for level, table in levels.items():
            found = [planned(SIZES[name], level, batch, optimizer=level != "L0") for batch in BATCHES]
            slope = (
                found[1][0] - found[0][0]
            )  # what each sample adds: no parameter, and nothing of the optimizer
            for batch, theirs, (each, shared) in zip(BATCHES, table, found, strict=True):
                bare = slope * batch
                cells = [f"{each:.1f}", off(each, theirs), f"{bare:.1f}", off(bare, theirs), f"{shared:.1f}"]
                yield f"| {name} | {level} | {batch} | {theirs or 'not there'} | {' | '.join(cells)} |"


def off(ours: float, theirs: float | None) -> str:
    return "" if theirs is None else f"{100 * (ours / theirs - 1):+.0f} %"


def main() -> None:
    """Print the table as Markdown, and the time that it took."""
    began = time.process_time()
    for row in rows():
        print(row, flush=True)
    print(f"\n{time.process_time() - began:.0f} s of CPU time")


if __name__ == "__main__":
    main()
