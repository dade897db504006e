"""Make the dumps of one framework, each in a folder of its own: what `torch_dumps.py` and `mindspore_dumps.py` share.

A case is a function that gets a folder and dumps to `dump` in it, the same on every run. What it prints, and what
`probe verify` and `probe show` say of the dump, stands beside it and is compared too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Case", "config_file", "in_threads", "main", "of_training", "recovered"]

Case = Callable[[Path], Any]
STEPS_THAT_ARE_SHOWN = 3


def config_file(folder: Path, level: str = "mix", task: str = "statistics", **keys: Any) -> str:
    """Write the configuration of a dump to folder/dump; return its path."""
    path = folder / "config.json"
    path.write_text(json.dumps({"level": level, "task": task, "dump_path": str(folder / "dump"), **keys}))
    return str(path)


def said_by_probe(dump: Path) -> str:
    """Return what the commands of `probe` say of a dump, with their exit codes."""
    from probe_format.cli.main import main as probe

    lines: list[str] = []
    for words in (["verify", str(dump)], ["show", str(dump)]):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = probe(words)
        lines.append(f"$ probe {words[0]}: {code}\n{printed.getvalue()}")
    return "\n".join(lines)


@contextlib.contextmanager
def printing_to(path: Path) -> Any:
    """Send standard output and error of this process, C's included, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for stream in (1, 2):
        os.dup2(file, stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, was in zip((1, 2), kept, strict=True):
            os.dup2(was, stream)
            os.close(was)
        os.close(file)


def recovered(folder: Path, script: str, name: str) -> None:
    """Run a case in a process that kills itself, and recover what it left."""
    from probe_format.cli.main import main as probe

    done = subprocess.run([sys.executable, script, "--child", name, str(folder)], check=False)
    print("the run ended with", done.returncode)
    print("recover:", probe(["recover", str(folder / "dump")]))


def of_training(trained: Callable[..., Any]) -> dict[str, Case]:
    """Return the cases that both frameworks have of some steps of training. trained: takes a folder and keys."""
    return {
        "L0": partial(trained, level="L0"),
        "L1": partial(trained, level="L1"),
        "mix": trained,
        "tensor": partial(trained, task="tensor", steps=1),
        "structure": partial(trained, task="structure", steps=1),
        "tensor_L0": partial(trained, task="tensor", level="L0", steps=1),
        "tensor_L1": partial(trained, task="tensor", level="L1", steps=1),
        "structure_L0": partial(trained, task="structure", level="L0", steps=1),
        "structure_L1": partial(trained, task="structure", level="L1", steps=1),
        "md5": partial(trained, summary_mode="md5", steps=1),
        "xor": partial(trained, summary_mode="xor", steps=1),
        "zero_count_views": partial(trained, level="L1", zero_count=True, views=True, steps=1),
        "async": partial(trained, async_dump=True),
        "async_tensor": partial(trained, async_dump=True, task="tensor", steps=1),
    }


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run work(0), work(1), ... side by side."""
    running = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)


def main(script: str, cases: dict[str, Case], children: dict[str, Case]) -> None:
    """Make the dumps that the command line names, or all: `SCRIPT FOLDER [NAME ...]`.

    children: cases that end in a kill, by the name of the case that starts one.
    """
    if sys.argv[1] == "--child":
        children[sys.argv[2]](Path(sys.argv[3]))
        return
    base, names = Path(sys.argv[1]), sys.argv[2:] or list(cases)
    for name in names:
        folder = base / name
        folder.mkdir(parents=True)
        with printing_to(folder / "said.txt"):
            try:
                cases[name](folder)
                if (folder / "dump").exists():
                    (folder / "probe.txt").write_text(said_by_probe(folder / "dump"))
            except Exception:
                traceback.print_exc()
                (folder / "failed.txt").write_text(traceback.format_exc())
        if (folder / "failed.txt").exists():
            print(f"{script}: {name} failed:\n{(folder / 'failed.txt').read_text()}", file=sys.stderr)
