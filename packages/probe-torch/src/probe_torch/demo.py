"""`python -m probe_torch.demo`: train a small GPT, dump two of its steps, and say what is in the dump."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from probe_format.terminal import say
from probe_runtime.demo import demo_arguments, summary, timed_steps

from . import PrecisionDebugger, seed_all
from .demo_model import Gpt, batches


def train(dump_path: Path, *, steps: int, dumped: Sequence[int], layers: int, width: int) -> dict[int, float]:
    """Train, and dump the steps asked for at mix level. Return each step's wall-clock seconds."""
    seed_all(1234)
    model = Gpt(layers, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def one_step(window: torch.Tensor) -> Any:
        loss = model(window)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with PrecisionDebugger(
        task="statistics", level="mix", dump_path=str(dump_path), step=list(dumped)
    ) as debugger:
        return timed_steps(debugger, model, batches(), one_step, steps, dumped)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m probe_torch.demo", description=__doc__)
    parser.add_argument("--out", type=Path, help="an empty or new directory (default: a new one below /tmp)")
    given = demo_arguments(parser, arguments, steps=12, layers=6, width=256)
    out = (given.out or Path(tempfile.mkdtemp(prefix="probe-demo-"))) / "dump"
    dumped = (given.steps // 2, given.steps - 2)
    say(f"Training a GPT of {given.layers} layers, width {given.width}; dumping steps {dumped} to {out}", "")
    seconds = train(out, steps=given.steps, dumped=dumped, layers=given.layers, width=given.width)
    say("", *summary(out, seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
