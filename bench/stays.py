"""What a dump leaves behind in the process: `python -m bench.stays`. Counted, so nearly the same every time.

collections: how often Python's collector runs in 100 plain and in 100 dumped steps of the small GPT, by generation.
instructions: of two plain steps before the first dumped step and after it, counted by callgrind, where valgrind with
    its headers and a C compiler are (some minutes); and the functions of which there are more after it.
"""

from __future__ import annotations

import collections
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS, SETTLED = 100, 30
SOURCES = [str(path) for path in sorted((Path(__file__).parents[1] / "packages").glob("*/src"))]
VALGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
SHIM = """#include <valgrind/callgrind.h>
void on(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void off(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def steps(level: str, folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what makes a plain step, and what makes a dumped one."""
    import torch
    from models import demo_model
    from probe_torch import PrecisionDebugger

    torch.set_num_threads(1)
    torch.manual_seed(0)
    source = demo_model()
    model: Any = source.Gpt(6, 64, length=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = source.batches(1, 16)
    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), task="statistics", level=level)

    def plain() -> None:
        model(next(data)).backward()
        optimizer.step()
        optimizer.zero_grad()

    def dumped() -> None:
        debugger.start(model)
        plain()
        debugger.stop()
        debugger.step()

    return plain, dumped


def count_collections(level: str, folder: Path) -> None:
    """Print the collections of each generation."""
    plain, dumped = steps(level, folder)
    found: collections.Counter[int] = collections.Counter()

    def note(phase: str, info: dict[str, int]) -> None:
        found[info["generation"]] += phase == "stop"

    for name, step in (("plain", plain), ("dumped", dumped)):
        for _ in range(3):
            step()
        found.clear()
        gc.callbacks.append(note)
        for _ in range(STEPS):
            step()
        gc.callbacks.remove(note)
        print(
            f"{STEPS} {name} steps at {level}: {[found[i] for i in range(3)]} collections of each generation"
        )


def count_instructions(level: str, folder: Path) -> None:
    """Have callgrind write one file of two plain steps before the first dumped one, and one of two after it."""
    import ctypes

    shim = ctypes.CDLL(str(folder / "shim.so"))
    plain, dumped = steps(level, folder)
    gc.disable()
    for before in (lambda: None, dumped):
        for _ in range(2):
            before()
        for _ in range(SETTLED):  # Python's interpreter learns anew which class it meets where
            plain()
        shim.on()
        plain()
        plain()
        shim.off()


def instructions_of(file: Path) -> tuple[int, collections.Counter[str]]:
    """Return the instructions in a file of callgrind, in all and by function."""
    command = ["callgrind_annotate", "--threshold=99.5", str(file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ *([\d,]+) \( *[\d.]+%\) +(.*?)(?: \[.*)?$", text, re.MULTILINE)
    found: collections.Counter[str] = collections.Counter()
    for number, name in rows:
        found[name.rpartition(":")[2] if name.startswith("./") else name] += int(number.replace(",", ""))
    return found.pop("PROGRAM TOTALS"), found


def main() -> int:
    """Count at level mix, each in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="probe-stays-") as name:
        folder = Path(name)
        child = [sys.executable, __file__]
        subprocess.run([*child, "collections", "mix", f"{name}/first"], env=environment, check=True)
        compiler = shutil.which("cc")
        if not (shutil.which("valgrind") and compiler and Path("/usr/include/valgrind").exists()):
            print("instructions: not counted (valgrind, its headers or a compiler are missing)")
            return 0
        (folder / "shim.c").write_text(SHIM)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c"], check=True
        )
        out = folder / "callgrind"
        command = [*VALGRIND, f"--callgrind-out-file={out}", *child, "instructions", "mix", name]
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        (before, first), (after, second) = (instructions_of(Path(f"{out}.{i}")) for i in (1, 2))
    print(
        f"two plain steps: {before:,} instructions before a dump, {after:,} after it ({after / before:.4f})"
    )
    for function, more in (second - first).most_common(10):
        print(f"{more:>12,} more in {function}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        kind, at, where = sys.argv[1:]
        (count_collections if kind == "collections" else count_instructions)(at, Path(where))
    else:
        raise SystemExit(main())
