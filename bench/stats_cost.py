"""What the statistics of one CPU tensor cost, by size and dtype, beside four reductions and a bound."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from probe_format.tensors import native
from probe_torch.tensors.statistics import cpu_stats
from torch import Tensor

from .tables import table

RESULTS = Path(__file__).parent / "results"
SIZES = (64, 4096, 262_144, 4_194_304)
LARGEST = 1 << 26  # 256 MB of float32, beyond every cache
DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "bool")
HEAD = [
    "dtype", "elements", "Probe us", "without fast us", "4 reductions us", "one pass (sum) us", "Probe / sum",
]  # fmt: skip


def four(t: Tensor) -> list[float]:
    """Max, min, mean and norm, one after the other, as msprobe has them."""
    wide = t if t.is_floating_point() else t.float()
    return [wide.max().item(), wide.min().item(), wide.mean().item(), torch.linalg.vector_norm(wide).item()]


def microseconds(work: Callable[[], object], budget: float) -> float:
    """Median time of a call; repeats for about `budget` seconds, at least 7 times."""
    work()
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < 7 or time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def over_a_read(seconds: float) -> dict[str, float]:
    """Return the microseconds of the statistics of 256 MB of float32, and those of one read of them, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    t = torch.randn(LARGEST)
    found = {
        "statistics": microseconds(lambda: cpu_stats(t), seconds),
        "read": microseconds(lambda: t.sum().item(), seconds),
    }
    torch.set_num_threads(threads)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure on one thread, print the table, write results/stats_cost.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.stats_cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each number")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, way = [], native.WAY
    for name in DTYPES:
        for size in (*SIZES, LARGEST) if name == "float32" else SIZES:
            t = torch.randn(size).to(getattr(torch, name))
            ours = microseconds(lambda t=t: cpu_stats(t), given.seconds)  # type: ignore[misc]
            native.WAY = ""
            slow = microseconds(lambda t=t: cpu_stats(t), given.seconds)  # type: ignore[misc]
            native.WAY = way
            theirs = microseconds(lambda t=t: four(t), given.seconds)  # type: ignore[misc]
            bound = microseconds(lambda t=t: t.sum().item(), given.seconds)  # type: ignore[misc]
            rows.append(
                [name, f"{size:,}", *(f"{x:.1f}" for x in (ours, slow, theirs, bound)), f"{ours / bound:.1f}"]
            )
    text = table(HEAD, rows)
    text += f"\n\nBy {f'probe-fast, {way}' if way else 'numpy alone'}."
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stats_cost.md").write_text(f"# Statistics of one tensor, one thread\n\n{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
