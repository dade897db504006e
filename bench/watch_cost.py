"""What task `watch` costs of a step of the demo's model (GPT of 6 layers, width 512), on the CPU.

The runs take turns, in one process: some steps without Probe, then of each kind of watch. Probe's own time (its hooks
on the optimizer, start, stop and step) is taken within each step, and is given as a share of that step. Last, the steps
between two that are watched, through the plain ones of the same round.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from probe_torch import PrecisionDebugger
from probe_torch.demo_model import Gpt, batches
from probe_torch.watch.updates import Updates

from .tables import table

#: name -> (the keys of the configuration, the goal: at most this share of the step)
KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "gradients and weights": ({}, 0.01),
    "moments too": ({"moments": True}, 0.02),
    "updates too": ({"moments": True, "updates": True}, 0.04),
}
#: Only the first of these steps is watched.
BETWEEN = {"step": ["0-1000/4"]}


class Clock:
    """Add up the time that is spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **keywords)
            finally:
                self.seconds += time.perf_counter() - begin

        return call


@contextmanager
def clocked(clock: Clock) -> Iterator[None]:
    """Time what Probe does within an optimizer's step, while open."""
    names = ("before", "after")
    originals = [getattr(Updates, name) for name in names]
    for name, original in zip(names, originals, strict=True):
        setattr(Updates, name, clock.timed(original))
    try:
        yield
    finally:
        for name, original in zip(names, originals, strict=True):
            setattr(Updates, name, original)


class Training:
    """The model, and one step after the other."""

    def __init__(self, layers: int, width: int, batch: int, length: int) -> None:
        torch.manual_seed(0)
        self.model = Gpt(layers, width, length=length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.data = batches(batch, length)
        self.clock = Clock()

    def step(self, debugger: Any = None) -> tuple[float, float]:
        """Return the seconds of a step, and those of them that are Probe's."""
        window, clock = next(self.data), self.clock
        clock.seconds, begin = 0.0, time.perf_counter()
        if debugger is not None:
            clock.timed(debugger.start)(self.model)
        self.model(window).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if debugger is not None:
            clock.timed(debugger.stop)()
            clock.timed(debugger.step)()
        return time.perf_counter() - begin, clock.seconds

    def turn(self, steps: int, folder: Path, keys: dict[str, Any] | None) -> list[tuple[float, float]]:
        """Make some steps after one more, with a debugger of these keys, and return the seconds of each."""
        if keys is None:
            return [self.step() for _ in range(steps + 1)][1:]
        with PrecisionDebugger(dump_path=str(folder), task="watch", **keys) as debugger:
            found = [self.step(debugger) for _ in range(steps + 1)][1:]
        shutil.rmtree(folder)
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.watch_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    for name, default in (("layers", 6), ("width", 512), ("batch", 4), ("length", 256), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    training = Training(given.layers, given.width, given.batch, given.length)
    shares: dict[str, list[float]] = {name: [] for name in KINDS}
    own: dict[str, list[float]] = {name: [] for name in KINDS}
    plain, between = [], []
    with clocked(training.clock), tempfile.TemporaryDirectory(prefix="probe-bench-") as folder:
        for i in range(-1, given.rounds):
            place = Path(folder) / "dump"
            unwatched = statistics.median(wall for wall, _ in training.turn(3, place, None))
            free = statistics.median(wall for wall, _ in training.turn(3, place, BETWEEN))
            if i >= 0:
                plain.append(unwatched)
                between.append(free / unwatched)
            for name, (keys, _) in KINDS.items():
                for wall, seconds in training.turn(2, place, keys):
                    if i >= 0:
                        shares[name].append(seconds / wall)
                        own[name].append(seconds)
    rows = [
        [
            name,
            f"{1e3 * statistics.median(own[name]):.1f}",
            f"{statistics.median(shares[name]):.2%}",
            f"{goal:.0%}",
        ]
        for name, (_, goal) in KINDS.items()
    ]
    print(f"a plain step: {statistics.median(plain):.3f} s; between two that are watched: "
          f"{statistics.median(between):.3f} of it (goal 0.98 to 1.02)")  # fmt: skip
    print(table(["watched", "Probe ms", "of the step", "goal"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
