"""`python -m probe_torch.demo`: train a small GPT, dump two of its steps, and say what is in the dump."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import probe_format
import torch
from probe_format.report import Report

from . import PrecisionDebugger, seed_all
from .demo_model import Gpt, batches

__all__ = ["main", "summary", "train"]

_WARM_UP = 2


def train(dump_path: Path, *, steps: int, dumped: Sequence[int], layers: int, width: int) -> dict[int, float]:
    """Train, and dump the steps asked for at mix level. Gives each step's wall-clock seconds."""
    seed_all(1234)
    model = Gpt(layers, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = batches()
    seconds: dict[int, float] = {}
    with PrecisionDebugger(
        task="statistics", level="mix", dump_path=str(dump_path), step=list(dumped)
    ) as debugger:
        for step in range(steps):
            window = next(data)
            begin = time.perf_counter()
            debugger.start(model)
            loss = model(window)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            debugger.stop()
            debugger.step()
            seconds[step] = time.perf_counter() - begin
            bar = "#" * (24 * (step + 1) // steps)
            note = "  dumped" if step in dumped else ""
            print(
                f"[{bar:24}] step {step:2}   loss {loss.item():.4f}   {seconds[step]:6.3f} s{note}",
                flush=True,
            )
    return seconds


def summary(dump_path: Path, seconds: Mapping[int, float]) -> str:
    """The table: what every dumped step holds, by its report, and what the dumping cost."""
    dump = probe_format.open(dump_path)
    reports = {rank.step or 0: rank.report for rank in dump.ranks if rank.report is not None}
    size = sum(file.stat().st_size for file in dump_path.rglob("*") if file.is_file())
    states = ", ".join(f"step {n} {report.state}" for n, report in reports.items())
    rows = [("The dump", f"{dump_path}   {size / 1e6:.1f} MB; {states}")]
    heads = "".join(f"{f'step {n}: seen':>16}{'recorded':>10}{'skipped':>9}" for n in reports)
    rows += [("", ""), ("", heads), *_counts(list(reports.values()))]
    for n, report in reports.items():
        rows += [("", ""), (f"Step {n}", ""), *_about(report)]
    rows += [("", ""), ("Cost", ""), *_cost(seconds, list(reports)), ("", "")]
    rows += [
        ("Look inside", f"probe show {next(iter(dump.ranks)).path}"),
        ("Check", f"probe verify {dump_path}"),
    ]
    return "\n".join(f"{title:18}{text}".rstrip() for title, text in rows)


def _counts(reports: Sequence[Report]) -> Iterator[tuple[str, str]]:
    """One row for each kind of thing that was seen, three columns for each step."""
    for kind in dict.fromkeys(kind for report in reports for kind in report.counts.get("seen", {})):
        cells = ""
        for report in reports:
            seen = report.counts["seen"].get(kind, 0)
            recorded = report.counts.get("recorded", {}).get(kind, 0)
            cells += f"{seen:16,}{recorded:10,}{seen - recorded:9,}"
        yield f"  {kind}", cells


def _about(report: Report) -> Iterator[tuple[str, str]]:
    skipped = [
        f"{n:7,} {how.replace('_', ' ')}: {why}"
        for how in ("filtered", "unsupported", "failed", "left_out")
        for why, n in report.counts.get(how, {}).items()
    ]
    yield from _listed("skipped", skipped or ["nothing"])
    why: dict[str, list[str]] = {}
    for item in report.not_seen:
        why.setdefault(item["why"], []).append(item["what"])
    unseen = [
        f"{what[0]}{f' and {len(what) - 1} more' if what[1:] else ''}: {reason}"
        for reason, what in why.items()
    ]
    yield from _listed("not looked at", unseen or ["nothing"])
    largest = {norm: where for where, norm in reversed(report.norms)}  # one name for each value
    yield from _listed(
        "largest norms", [f"{norm:<10.6g} {where}" for norm, where in reversed(largest.items())]
    )
    first = report.first_non_finite
    yield (
        "  non-finite",
        "nothing" if first is None else f"{first['record']}, {first['slot']}: {first['why']}",
    )
    yield from _listed("faults", [f"{f['count']} x {f['where']}" for f in report.faults] or ["none"])


def _cost(seconds: Mapping[int, float], dumped: Sequence[int]) -> Iterator[tuple[str, str]]:
    plain = [s for n, s in seconds.items() if n not in dumped and n >= _WARM_UP]
    watched = [seconds[n] for n in dumped if n in seconds]
    if plain and watched:
        usual, slow = statistics.median(plain), statistics.median(watched)
        yield "  undumped step", f"{usual:.3f} s   median of {len(plain)}"
        yield "  dumped step", f"{slow:.3f} s   median of {len(watched)}, writing the files included"
        yield "  ratio", f"{slow / usual:.2f}"


def _listed(title: str, items: Iterable[str]) -> Iterator[tuple[str, str]]:
    for i, item in enumerate(items):
        yield "" if i else f"  {title}", item


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m probe_torch.demo", description=__doc__)
    parser.add_argument("--out", type=Path, help="an empty or new directory (default: a new one below /tmp)")
    parser.add_argument("--steps", type=int, default=12, help="training steps (default: 12)")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 4")
    given = parser.parse_args(arguments)
    if given.steps < _WARM_UP + 3:
        parser.error(f"--steps must be at least {_WARM_UP + 3}: two are dumped, {_WARM_UP} warm up.")
    out = (given.out or Path(tempfile.mkdtemp(prefix="probe-demo-"))) / "dump"
    dumped = (given.steps // 2, given.steps - 2)
    print(f"Training a GPT of {given.layers} layers, width {given.width}; dumping steps {dumped} to {out}\n")
    seconds = train(out, steps=given.steps, dumped=dumped, layers=given.layers, width=given.width)
    print(f"\n{summary(out, seconds)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
