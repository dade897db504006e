"""Race `probe diff` against `msprobe compare` on the same pair of dumps, each as a process of its own.

python -m bench.diff_race [--records 100000] [--keep FOLDER]: writes two mix dumps of a deep model with PyTorch, which
differ by one epsilon in the middle, compares them with both tools, and prints times and memory. msprobe is that of
PROBE_MSPROBE_PYTHON.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
from probe_format import open as open_dump

__all__ = ["Cost", "main"]

#: How many records one block makes, forward and backward.
_PER_BLOCK = 44


@attrs.frozen
class Cost:
    """What a process took: seconds of the processor and of the clock, and the most memory at a time in MB."""

    cpu: float
    wall: float
    memory: float
    code: int
    said: str


def run(command: list[str], cwd: Path) -> Cost:
    """Run a command and measure it with all that it starts."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=cwd)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read()
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(cpu, wall, usage.ru_maxrss / 1024, process.returncode, said)


def write_dump(folder: Path, blocks: int, eps: float) -> None:
    """Dump one training step of a deep model at level mix."""
    import torch
    import torch.nn.functional as F
    from probe_torch import PrecisionDebugger
    from torch import nn

    class Block(nn.Module):
        def __init__(self, eps: float) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(16, eps), nn.Linear(16, 32), nn.Linear(32, 16)
            self.gate = nn.Parameter(torch.ones(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(x)
            q, k = h * self.gate, h.roll(1, 0)
            scores = torch.softmax(q @ k.transpose(0, 1) * 0.25, -1)
            h = F.gelu(self.up(scores @ h))
            return x + 0.01 * torch.tanh(self.down(h)).clamp(-1.0, 1.0).mul(self.gate)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block(eps if i == blocks // 2 else 1e-5) for i in range(blocks)))
    with PrecisionDebugger(dump_path=str(folder), task="statistics", level="mix") as debugger:
        debugger.start(model)
        model(torch.randn(8, 16)).square().mean().backward()
        debugger.stop()
        debugger.step()


def main() -> None:
    """Write the dumps, run both tools, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="where the dumps go and stay")
    parser.add_argument("--write", nargs=3, metavar=("FOLDER", "BLOCKS", "EPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write_dump(Path(arguments.write[0]), int(arguments.write[1]), float(arguments.write[2]))
        return
    with tempfile.TemporaryDirectory(prefix="probe-race-") as name:
        folder = arguments.keep or Path(name)
        folder.mkdir(exist_ok=True)
        race(folder.resolve(), arguments.records)


def race(folder: Path, records: int) -> dict[str, Any]:
    """Compare two dumps of about this many records with both tools."""
    ranks = []
    for name, eps in (("good", "1e-5"), ("bad", "1e-3")):
        if not (folder / name).exists():
            words = [sys.executable, "-m", "bench.diff_race", "--write", str(folder / name)]
            made = run([*words, str(records // _PER_BLOCK + 1), eps], Path.cwd())
            if made.code:
                raise SystemExit(made.said)
        ranks.append(next((folder / name).glob("step0/rank*")))
    counts = [len(open_dump(rank).ranks[0].records) for rank in ranks]
    print(
        f"{counts[0]} and {counts[1]} records, {(ranks[0] / 'dump.json').stat().st_size / 2**20:.0f} MB each"
    )
    start = "import sys; from probe_format.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ours = run([sys.executable, "-c", start, "diff", *map(str, ranks)], folder)
    show("probe diff", ours)
    verdicts = [line for line in ours.said.splitlines() if line.startswith("different: ")]
    print(f"  {verdicts[0] if verdicts else 'no difference was found'}")
    python = os.environ.get("PROBE_MSPROBE_PYTHON")
    if python is None:
        print("PROBE_MSPROBE_PYTHON names no python with msprobe: only probe diff was run")
        return {"records": counts, "probe": ours}
    tool = Path(python).with_name("msprobe")
    files = [str(rank / "dump.json") for rank in ranks]
    theirs = run([str(tool), "compare", "-tp", files[1], "-gp", files[0], "-o", str(folder / "out")], folder)
    show("msprobe compare", theirs)
    written = sorted((folder / "out").glob("*"))
    print(f"  exit code {theirs.code}, wrote {', '.join(file.name for file in written) or 'nothing'}")
    cpu, wall = theirs.cpu / ours.cpu, theirs.wall / ours.wall
    print(f"probe diff takes {cpu:.1f} times less of the processor, and {wall:.1f} times less of the clock")
    return {"records": counts, "probe": ours, "msprobe": theirs}


def show(name: str, cost: Cost) -> None:
    """Print a line with what a process took."""
    print(f"{name:16} {cost.cpu:7.1f} s CPU {cost.wall:7.1f} s wall {cost.memory:7.0f} MB", flush=True)


if __name__ == "__main__":
    main()
