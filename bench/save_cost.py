"""What one `probe_save.save` costs, beside one pass over the data and a bare write of the same bytes.

For each size, in one run and taking turns: a sum (one pass over the data), `np.save` or `torch.save`, a bare
write (the bytes into a new file, one system call), and `save` as people call it, with task statistics and
with task tensor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import probe_save as ps
import torch

from .parts import without as _without
from .tables import table

SIZES = {"1 KB": 256, "1 MB": 1 << 18, "100 MB": 25 << 20}
HEAD = [
    "float32", "one pass us", "save, statistics us", "over one pass us", "bare write us", "np/torch.save us",
    "save, tensor us", "of a bare write", "of np/torch.save",
]  # fmt: skip


def bare_write(path: Path, raw: memoryview) -> None:
    """The least that a new file of these bytes can cost."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    done = 0
    while done < raw.nbytes:
        done += os.write(fd, raw[done:])
    os.close(fd)


def turns(
    works: dict[str, Callable[[int], object]], rounds: int, after: Callable[[int], None]
) -> dict[str, float]:
    """Median seconds of each work; they take turns, so that all see the same state of the machine."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for i in range(rounds + 2):
        for name, work in works.items():
            begin = time.perf_counter()
            work(i)
            if i > 1:
                times[name].append(time.perf_counter() - begin)
        after(i)
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def times(kind: str, count: int, rounds: int, folder: Path) -> dict[str, float]:
    """Return the microseconds of each work on a value of so many floats."""
    array = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    value: Any = array if kind == "numpy" else torch.from_numpy(array)
    raw = memoryview(array).cast("B")
    bare, own = folder / "bare", folder / "own"
    numbers, tensors = (ps.Saver(dump_path=folder / task, task=task) for task in ("statistics", "tensor"))

    def framework_save(_: int) -> None:
        if kind == "numpy":
            np.save(own.with_suffix(".npy"), value)
        else:
            torch.save(value, own)

    def clear(_: int) -> None:
        for path in (bare, own, own.with_suffix(".npy"), *(folder / "tensor").rglob("x.*")):
            path.unlink(missing_ok=True)

    found = turns(
        {
            "pass": lambda _: value.sum().item(),
            "statistics": lambda _: numbers.save(value, "x"),
            "bare": lambda _: bare_write(bare, raw),
            "own": framework_save,
            "tensor": lambda _: tensors.save(value, "x"),
        },
        rounds,
        clear,
    )
    numbers.close()
    tensors.close()
    shutil.rmtree(folder / "tensor")
    shutil.rmtree(folder / "statistics")
    return found


def measure(rounds: int, folder: str | None) -> Iterator[dict[str, Any]]:
    """Yield the microseconds of each kind and size.

    rounds: at 100 MB; the smaller sizes have up to 200 times as many, or a slow tenth of a second would be all of one.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for kind in ("numpy", "torch"):
            for label, count in SIZES.items():
                more = min(200, SIZES["100 MB"] // count)
                yield {"name": f"{kind} {label}", **times(kind, count, rounds * more, Path(name))}


def without(parts: Sequence[str], rounds: int, folder: str | None) -> Iterator[dict[str, Any]]:
    """Yield the microseconds of each kind and size without each of these parts (`parts.py`), a process each."""
    for part in parts:
        with ProcessPoolExecutor(1, get_context("spawn"), _without, (part,)) as process:
            for found in process.submit(_measured, rounds, folder).result():
                yield {**found, "part": part}


def _measured(rounds: int, folder: str | None) -> list[dict[str, Any]]:
    return [*measure(rounds, folder)]


def row(found: dict[str, Any]) -> list[str]:
    """One line of the table."""
    return [
        found["name"], f"{found['pass']:,.0f}", f"{found['statistics']:,.0f}",
        f"{found['statistics'] - found['pass']:+,.0f}", f"{found['bare']:,.0f}", f"{found['own']:,.0f}",
        f"{found['tensor']:,.0f}", f"{found['tensor'] / found['bare']:.2f}", f"{found['tensor'] / found['own']:.2f}",
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure on one thread, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.save_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="at 100 MB; smaller sizes have more")
    parser.add_argument("--folder", default=None, help="where to write; a temporary folder")
    given = parser.parse_args(arguments)
    print(table(HEAD, [row(found) for found in measure(given.rounds, given.folder)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
