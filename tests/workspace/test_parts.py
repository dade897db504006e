"""What runs the parts of `test:all`: each after its environments, and none after one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from members import ROOT

HATCH = """
import sys
words = " ".join(sys.argv[1:])
with open("log", "a") as log:
    log.write(words + "\\n")
print("said of", words)
sys.exit("broken" in words)
"""


@pytest.fixture
def ran(tmp_path: Path) -> object:
    """Run parts with a hatch that writes down what it is told: the status, the lines of its log, the output."""
    (tmp_path / "hatch.py").write_text(HATCH)

    def run(*parts: str) -> tuple[int, list[str], str]:
        command = [sys.executable, str(ROOT / ".ci" / "parts.py"), *parts]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, (tmp_path / "log").read_text().splitlines(), done.stdout + done.stderr

    return run


def test_each_part_runs_after_its_environments(ran) -> None:  # type: ignore[no-untyped-def]
    status, log, said = ran("a:all", "b:unit+c", "c:unit")
    assert status == 0
    scripts = [line for line in log if line.startswith("run ")]
    assert scripts == ["run a:all", "run b:unit", "run c:unit"]
    made = [line for line in log if line.startswith("env create ")]
    assert sorted(made) == ["env create a", "env create b", "env create c"]
    assert log.index("run a:all") > log.index("env create a")
    assert log.index("run b:unit") > max(log.index("env create b"), log.index("env create c"))
    assert "b:unit+c" in said.rpartition("all parts passed")[2]


def test_the_first_part_that_fails_is_named_and_ends_the_run(ran) -> None:  # type: ignore[no-untyped-def]
    status, log, said = ran("a:all", "a:broken", "a:unit")
    assert status == 1 and "run a:unit" not in log
    assert said.rstrip().endswith("FAILED: hatch run a:broken")


def test_an_environment_that_cannot_be_made_is_named_with_what_pip_says(ran) -> None:  # type: ignore[no-untyped-def]
    status, log, said = ran("a:all", "a:unit+broken")
    assert status == 1 and "run a:all" in log and "run a:unit" not in log
    assert "said of env create broken" in said
    assert said.rstrip().endswith("FAILED: the environment broken could not be made.")
