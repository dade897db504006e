"""What task `watch` costs of a step of the demo's model (GPT of 6 layers, width 512, 4 x 256 tokens), on the CPU.

The runs take turns, in one process: some steps without Probe, then of each kind of watch. Probe's own time (its hooks
on the optimizer, start, stop and step) is taken within each step, and is given as a share of that step. In a plain
step after each the same tensors are only read, at the same place (torch.sum; for updates they are copied once as well):
less than that time no watch can take on this machine, and a goal below it cannot be met there. Steps between two that
are watched are measured in pairs with plain ones, which go first in every other pair. All in CPU time, on one thread
unless --threads says more.
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

from .machine import about
from .page import WATCH
from .tables import keep, table

#: name -> (the keys of the configuration, the goal: at most this share of the step)
KINDS: dict[str, tuple[dict[str, Any], float]] = {
    "gradients and weights": ({}, 0.01),
    "moments too": ({"moments": True}, 0.02),
    "updates too": ({"moments": True, "updates": True}, 0.04),
}


#: Seconds of CPU time of the process: on one thread, others that use the machine count for little.
_now = time.process_time


class Clock:
    """Add up the time that is spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            begin = _now()
            try:
                return function(*args, **keywords)
            finally:
                self.seconds += _now() - begin

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


def _read(tensors: Sequence[torch.Tensor]) -> None:
    for t in tensors:
        t.sum()


class Training:
    """The model, and one step after the other."""

    def __init__(self, layers: int, width: int, batch: int, length: int) -> None:
        torch.manual_seed(0)
        self.model = Gpt(layers, width, length=length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.data = batches(batch, length)
        self.clock = Clock()
        self.copies: list[torch.Tensor] = []

    def step(self, debugger: Any = None) -> tuple[float, float]:
        """Return the seconds of a step, and those of them that are Probe's."""
        window, clock = next(self.data), self.clock
        clock.seconds, begin = 0.0, _now()
        if debugger is not None:
            clock.timed(debugger.start)(self.model)
        self.optimizer.zero_grad()
        self.model(window).backward()
        self.optimizer.step()
        if debugger is not None:
            clock.timed(debugger.stop)()
            clock.timed(debugger.step)()
        return _now() - begin, clock.seconds

    def floor(self, *, moments: bool = False, updates: bool = False) -> float:
        """Make a plain step, and return the seconds that it takes to only read in it what is watched."""
        parameters = [p.detach() for p in self.model.parameters()]
        self.optimizer.zero_grad()
        self.model(next(self.data)).backward()
        read = [*parameters, *(p.grad for p in self.model.parameters() if p.grad is not None)]
        if moments:
            read += [
                m for state in self.optimizer.state.values() for key, m in state.items() if key != "step"
            ]
        begin = _now()
        _read(read)
        seconds = _now() - begin
        self.optimizer.step()
        if updates:
            self.copies = self.copies or [p.clone() for p in parameters]
            begin = _now()
            _read(self.copies)
            torch._foreach_copy_(self.copies, parameters)
            seconds += _now() - begin
        return seconds

    def turn(self, steps: int, folder: Path, keys: dict[str, Any]) -> list[tuple[float, float, float]]:
        """Make some watched steps after one more: the seconds of each, Probe's of them, and those of its floor."""
        with PrecisionDebugger(dump_path=str(folder), task="watch", **keys) as debugger:
            found = [(*self.step(debugger), self.floor(**keys)) for _ in range(steps + 1)][1:]
        shutil.rmtree(folder)
        return found

    def pairs(self, count: int, folder: Path) -> list[float]:
        """Return ratios of steps between two watched ones over plain ones beside them."""
        found = []
        with PrecisionDebugger(dump_path=str(folder), task="watch", step=[0, 1 << 30]) as debugger:
            self.step(debugger)
            for i in range(count):
                first, second = (None, debugger) if i % 2 else (debugger, None)
                a, b = self.step(first)[0], self.step(second)[0]
                found.append(b / a if i % 2 else a / b)
        shutil.rmtree(folder)
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and keep it for the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.watch_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the table for docs/performance.md")
    for name, default in (("layers", 6), ("width", 512), ("batch", 4), ("length", 256), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(given.threads)
    training = Training(given.layers, given.width, given.batch, given.length)
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in KINDS}
    between: list[float] = []
    with clocked(training.clock), tempfile.TemporaryDirectory(prefix="probe-bench-") as folder:
        place = Path(folder) / "dump"
        training.turn(1, place, {})
        for _ in range(given.rounds):
            between += training.pairs(4, place)
            for name, (keys, _) in KINDS.items():
                found[name] += training.turn(2, place, keys)
    head = ["watched", "a step, ms", "Probe, ms", "only reading, ms", "of the step", "only reading", "goal"]
    rows = []
    for name, (_, goal) in KINDS.items():
        wall, own, floor = (statistics.median(column) for column in zip(*found[name], strict=True))
        share, least = (statistics.median(one[i] / one[0] for one in found[name]) for i in (1, 2))
        times = (f"{1e3 * seconds:.1f}" for seconds in (wall, own, floor))
        rows.append([name, *times, f"{share:.2%}", f"{least:.2%}", f"{goal:.0%}"])
    low, middle, high = statistics.quantiles(between, n=4)
    ratio = (
        f"{middle:.3f} of a plain one ({low:.3f} to {high:.3f} in the middle half of {len(between)} pairs)"
    )
    print(
        table(head, rows), f"A step between two that are watched takes {ratio}; goal 0.98 to 1.02.", sep="\n"
    )
    if given.write:
        of = about(quick=False)
        text = " ".join((__doc__ or "").split()) + f" Such a step takes {ratio}."
        text += (
            f" {of['date']}, {of['processor']}, {given.threads} of {of['cores']} cores, load {of['load']}."
        )
        keep(WATCH, text, head, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
