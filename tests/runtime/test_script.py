"""`probe run` runs a script as `python` does: what the script sees of itself is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, os, sys, traceback
from pathlib import Path

def failing():
    raise KeyError(1)

if __name__ == "__main__":
    print(__file__, sys.argv, __name__, __package__ or "", sys.path[0], __annotations__)
    print(sorted(name for name in globals() if name.startswith("__")))
    print([name for name in ("__main__", "__mp_main__") if vars(sys.modules[name]) is globals()])
    os.chdir("/")
    print(Path(__file__).read_text() != "")
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=answers.put, args=["from a process, which imports this file"])
    process.start()
    print(answers.get(timeout=60))
    process.join()
    try:
        failing()
    except KeyError:
        print(traceback.format_exc())
"""


@pytest.mark.parametrize(
    "words", [["x.py"], ["./sub/x.py", "a", "--b"], ["package", "a"], ["-m", "package", "--b"]], ids=" ".join
)
def test_a_script_sees_of_itself_what_it_does_without_probe(words: list[str], tmp_path: Path) -> None:
    for file in ("x.py", "sub/x.py", "package/__init__.py", "package/__main__.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(SCRIPT if "init" not in file else "")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def said(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command, *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    plain = said()
    assert plain.count("\n") > 7
    assert said("-m", "probe_format", "run", "--dump_path", "dump") == plain
