"""`python -m probe_torch.demo`: train a small GPT, dump two of its steps, and say what is in the dump."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
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
    found = [(step.number, rank.path, rank.report) for step in dump.steps for rank in step.ranks]
    lines: list[str] = []
    for number, path, report in found:
        if report is None:
            lines.append(f"step {number}: {path} has no report")
            continue
        lines += [f"Step {number}", *_rows(_about(path, report)), ""]
    lines += ["Cost", *_rows(_cost(seconds, [n for n, _, _ in found if n is not None])), ""]
    lines += ["Next", *_rows([("look", f"probe show {found[0][1]}"), ("check", f"probe verify {dump_path}")])]
    return "\n".join(lines)


def _about(path: Path, report: Report) -> Iterable[tuple[str, str]]:
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    yield "dump", f"{path}   ({size / 1e6:.1f} MB, {report.state})"
    counts = report.counts
    for kind in counts.get("seen", {}):
        yield (
            f"{kind}",
            f"{counts['seen'][kind]:6,} seen  {counts.get('recorded', {}).get(kind, 0):6,} recorded",
        )
    skipped = [
        f"{n:6,} {how.replace('_', ' ')}: {why}"
        for how in ("filtered", "unsupported", "failed", "left_out")
        for why, n in counts.get(how, {}).items()
    ]
    yield from _listed("skipped", skipped or ["none"])
    yield from _listed(
        "not seen", [f"{item['what']}: {item['why']}" for item in report.not_seen[:5]] or ["none"]
    )
    yield from _listed("largest norms", [f"{norm:10.4g}  {where}" for where, norm in report.norms])
    first = report.first_non_finite
    found = "none" if first is None else f"{first['record']} {first['slot']}: {first['why']}"
    yield "non-finite", found
    yield "faults", ", ".join(str(fault) for fault in report.faults) or "none"


def _cost(seconds: Mapping[int, float], dumped: Sequence[int]) -> Iterable[tuple[str, str]]:
    plain = [s for n, s in seconds.items() if n not in dumped and n >= _WARM_UP]
    watched = [seconds[n] for n in dumped if n in seconds]
    if not plain or not watched:
        return
    usual, slow = statistics.median(plain), statistics.median(watched)
    yield "undumped step", f"{usual:.3f} s   (median of {len(plain)})"
    yield "dumped step", f"{slow:.3f} s   (median of {len(watched)}, writing the files included)"
    yield "ratio", f"{slow / usual:.2f}"


def _listed(title: str, items: Iterable[str]) -> Iterable[tuple[str, str]]:
    for i, item in enumerate(items):
        yield ("" if i else title), item


def _rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {title:16}{text}" for title, text in pairs]


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
