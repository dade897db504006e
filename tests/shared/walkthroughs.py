"""Run the blocks of a page as a reader would, in order, and compare what it shows with what comes out.

In a page that is run,

- a ``python``, ``yaml`` or ``json`` block is a file: its name is the first line (``# train.py``), or in a comment
  before the block (``<!-- file: config.json -->``);
- a ``console`` block has commands (``$ python train.py``), each followed by what it prints. ``...`` stands for what
  varies: on a line of its own for any number of lines, else for a part of the line;
- a ``text`` block is not run: what installs packages, or shows a form;
- a comment before a ``console`` block says what differs from a command that ends with 0 in the page's own environment:
  ``<!-- exit: 1 -->``, ``<!-- in: mindspore -->``, ``<!-- exit: 1, in: msprobe -->``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from blocks import blocks_of
from forks import Forks

__all__ = ["BLOCKS", "ROOT", "matches", "run_command", "run_page"]

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = frozenset({"python", "yaml", "json", "console", "text", "diff"})


def matches(shown: str, printed: str) -> bool:
    """Tell whether a command printed what the page shows, where ``...`` stands for anything."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n"
    lines = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def run_page(
    page: Path, folder: Path, pythons: Mapping[str, Path] | None = None, forks: Forks | None = None
) -> None:
    """Make the files of a page in an empty folder, run its commands there, and compare what they print.

    pythons: the interpreter of each other environment that the page names (``in: mindspore``). The page's own is the
    one that runs the tests. forks: what runs the scripts in that.
    """
    own = folder.with_name(f"{folder.name}-programs")
    if forks is not None:
        forks.commands(own)
    for block in blocks_of(page):
        if block.language == "console":
            elsewhere = "in" in block.comment
            python = (pythons or {})[block.comment["in"]] if elsewhere else Path(sys.executable)
            first = [] if elsewhere else [own]
            assert python.exists(), f"{page.name} is run with {python}, which is not there (CONTRIBUTING.md)"
            for command, shown in block.commands:
                code, printed = run_command(command, folder, python, first)
                expected = int(block.comment.get("exit", "0"))
                assert code == expected, f"{page.name}: `{command}` ended with {code}:\n{printed}"
                if not matches(shown, printed):
                    pytest.fail(f"{page.name}: `{command}` shows\n\n{shown}\nbut prints\n\n{printed}")
        elif block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def run_command(command: str, folder: Path, python: Path, first: Sequence[Path] = ()) -> tuple[int, str]:
    """Run a command in bash with one environment's programs first; return its exit code, and all it printed.

    first: folders whose programs go before those.
    """
    sources = [
        *(str(source) for source in sorted(ROOT.glob("packages/*/src"))),
        os.environ.get("PYTHONPATH", ""),
    ]
    kept = {name: value for name, value in os.environ.items() if name.startswith(("GLOG_", "OMP_"))}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            "GLOG_v": "3",  # MindSpore: errors only, as the pages advise
            **kept,
            "PATH": ":".join(map(str, [*first, python.parent, "/usr/bin", "/bin"])),
            "PYTHONPATH": ":".join(filter(None, sources)),
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
            **({"PYTHON_EXEC": str(first[0] / "python")} if first else {}),  # what torch's launcher starts
            "LANG": "C.UTF-8",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout
