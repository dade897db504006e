"""What dumping a MindSpore step costs, with Probe and with msprobe 26.2: `python -m bench.mindspore [OUT]`.

Each measurement is a process of its own, the three tools by turns, so that a change of the machine's mood hits
all of them. A time is that of one step, start to step() included, the median of the steps after two that warm
up, once by the clock and once in CPU seconds of the process (all threads): MindSpore computes behind Python.
Dumps go to a temporary folder (TMPDIR). msprobe dies on a CPU for want of the LinalgVectorNorm kernel: it
gets `mint.norm` from `ops.norm`, before it is imported.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES = {
    "L0 statistics": ("L0", "statistics", {}),
    "L1 statistics": ("L1", "statistics", {}),
    "mix statistics": ("mix", "statistics", {}),
    "mix md5": ("mix", "statistics", {"summary_mode": "md5"}),
    "mix tensor": ("mix", "tensor", {}),
}
NETWORKS = ("gpt", "cnn")
STEPS, WARM_UP = 7, 2


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor, nn, ops

    rng = np.random.default_rng(0)
    if name == "gpt":
        from probe_mindspore.demo_model import Gpt, batches

        return Gpt(layers=2, width=128), next(batches(size=4))

    class Cnn(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.c2, self.c3 = (
                nn.Conv2d(3, 16, 3),
                nn.Conv2d(16, 32, 3, stride=2),
                nn.Conv2d(32, 64, 3, stride=2),
            )
            self.b1, self.b2, self.b3 = nn.BatchNorm2d(16), nn.BatchNorm2d(32), nn.BatchNorm2d(64)
            self.relu, self.flat, self.head = nn.ReLU(), nn.Flatten(), nn.Dense(64 * 64, 10)

        def construct(self, x: Any, y: Any) -> Any:
            x = self.relu(self.b1(self.c1(x)))
            x = self.relu(self.b2(self.c2(x)))
            x = self.relu(self.b3(self.c3(x)))
            return ops.cross_entropy(self.head(self.flat(x)), y)

    images = Tensor(rng.normal(size=(16, 3, 32, 32)).astype(np.float32))
    return Cnn(), (images, Tensor(rng.integers(0, 10, 16), ms.int32))


def measure(tool: str, name: str, case: str) -> dict[str, float]:
    """CPU and wall seconds of a step under one tool (``none``, ``probe``, ``msprobe``), in this process."""
    import mindspore as ms
    from mindspore import mint, nn, ops

    ms.set_context(runtime_num_threads=1)
    ms.set_seed(1)
    level, task, section = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        document = {"task": task, "level": level, "dump_path": f"{folder}/dump", "rank": [], "step": []}
        config.write_text(json.dumps({**document, task: {"scope": [], "list": [], **section}}))
        debugger: Any = None
        if tool == "msprobe":
            mint.norm = lambda x, *args, **kwargs: ops.norm(x)
            from msprobe.mindspore import PrecisionDebugger as Theirs

            debugger = Theirs(config_path=str(config))
        elif tool == "probe":
            from probe_mindspore import PrecisionDebugger as Ours

            debugger = Ours(str(config))
        model, batch = network(name)
        model.set_train()
        optimizer = nn.SGD(model.trainable_params(), 0.01)
        forward = ms.value_and_grad(lambda *b: model(*b), None, optimizer.parameters)
        cpu, wall = [], []
        for _ in range(STEPS):
            begin = time.process_time(), time.perf_counter()
            if debugger is not None:
                debugger.start(model)
            loss, grads = forward(*batch)
            optimizer(grads)
            loss.asnumpy(), optimizer.parameters[0].asnumpy()
            if debugger is not None:
                debugger.stop()
                debugger.step()
            cpu.append(time.process_time() - begin[0])
            wall.append(time.perf_counter() - begin[1])
    return {"cpu": statistics.median(cpu[WARM_UP:]), "wall": statistics.median(wall[WARM_UP:])}


def _apart(tool: str, name: str, case: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.mindspore", "--measure", tool, name, case]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{tool}, {name}, {case}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def table(rounds: int = 3) -> str:
    """Measure everything ``rounds`` times; the medians, as a Markdown table."""
    rows = [
        "| network | dump | time | a step, ms | with Probe | with msprobe | ratio Probe | ratio msprobe | overhead |"
    ]
    rows.append("|---|---|---|---|---|---|---|---|---|")
    for name in NETWORKS:
        for case in CASES:
            times: dict[str, list[dict[str, float]]] = {"none": [], "probe": [], "msprobe": []}
            for _ in range(rounds):
                for tool, found in times.items():
                    found.append(_apart(tool, name, case))
            for kind in ("wall", "cpu"):
                none, probe, msprobe = (
                    statistics.median(found[kind] for found in times[tool]) * 1e3 for tool in times
                )
                share = (probe - none) / (msprobe - none)
                rows.append(
                    f"| {name} | {case} | {kind} | {none:.1f} | {probe:.1f} | {msprobe:.1f} | "
                    f"{probe / none:.2f} | {msprobe / none:.2f} | {share:.2f} of msprobe's |"
                )
                print(rows[-1], flush=True)
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--measure"]:
        print(json.dumps(measure(*arguments[1:])))
        return
    out = Path(arguments[0] if arguments else "bench/results/mindspore.md")
    head = "# Cost of a dumped MindSpore step (CPU, PyNative)\n\nMade by `hatch run bench-mindspore:run`; how it is "
    out.write_text(f"{head}measured is told in bench/mindspore.py.\n\n{table()}")


if __name__ == "__main__":
    main(sys.argv[1:])
