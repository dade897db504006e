"""What `bench.against` runs with the packages of one checkout, by path: `against_worker.py KIND ...`.

steps: train a small GPT; each order on standard input ("plain", "dumped") is a step, each answer a line of JSON: CPU
    seconds of the step, of start(), stop() and step() in it, and the records of its dump.
killed: dump a step of so many records, and die in it.
recovery: recover a killed step; the CPU seconds that it took.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, TextIO

LAYERS, WIDTH, LENGTH = 6, 64, 16


def steps(answers: TextIO, folder: Path, config: dict[str, Any], keep: bool) -> None:
    """Answer the orders until the input ends."""
    import torch
    from models import demo_model
    from probe_torch import PrecisionDebugger
    from worker import written

    torch.set_num_threads(1)
    torch.manual_seed(0)
    source = demo_model()
    model = source.Gpt(LAYERS, WIDTH, length=LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = source.batches(1, LENGTH)
    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), **config)
    for order in sys.stdin:
        dumped, around, window = order.strip() == "dumped", 0.0, next(data)
        begin = time.process_time()
        if dumped:
            debugger.start(model)
            around = time.process_time() - begin
        loss = model(window)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dumped:
            stop = time.process_time()
            debugger.stop()
            debugger.step()
            around += time.process_time() - stop
        whole = time.process_time() - begin
        records = 0
        if dumped:
            (report,) = (folder / "dump").glob("step*/*/report.json")
            records = json.loads(report.read_text())["records"]
            written(folder / "dump", keep=keep)
        print(json.dumps({"step": whole, "around": around, "records": records}), file=answers, flush=True)


def killed(folder: Path, count: int, config: dict[str, Any]) -> None:
    """Dump a step of `count` records, half of them backward ones, and die."""
    import torch
    from probe_torch import PrecisionDebugger

    torch.set_num_threads(1)
    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), **config)
    x, weight = torch.ones(4, 16), torch.ones(16, 16, requires_grad=True)
    debugger.start()
    for _ in range(count // 20):
        y = x
        for _ in range(10):
            y = torch.nn.functional.linear(y, weight)
        torch.autograd.backward(y, torch.ones_like(y))
    os.kill(os.getpid(), signal.SIGKILL)


def recovery(answers: TextIO, folder: Path) -> None:
    """Recover what is there."""
    from probe_format.write import recover

    begin = time.process_time()
    (found,) = recover(folder / "dump")
    taken = time.process_time() - begin
    print(json.dumps({"seconds": taken, "records": found.records, "outcome": found.outcome}), file=answers)


def main() -> None:
    """Take the real standard output for the answers."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind, place, *rest = sys.argv[1:]
    if kind == "steps":
        steps(answers, Path(place), json.loads(rest[0]), rest[1] == "keep")
    elif kind == "killed":
        killed(Path(place), int(rest[0]), json.loads(rest[1]))
    else:
        recovery(answers, Path(place))


if __name__ == "__main__":
    main()
