"""What Probe warns of is told, and never ends or changes a run, whatever is done with warnings."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import warned_run
from framework import Framework
from probe_format.cli.main import main as probe

#: MindSpore cannot be imported where a deprecation is an error. None of Probe's warnings is one.
STRICT = ("-W", "error", "-W", "default::DeprecationWarning")


def ran(framework: Framework, place: str, *options: str, how: str = 'exec "$@"') -> tuple[str, str]:
    """What warned_run.py prints on stdout and stderr. options: of Python. how: the script of bash that starts it."""
    command = [sys.executable, *options, warned_run.__file__, framework.home, place]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", how, "bash", *command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def losses(framework: Framework) -> str:
    return ran(framework, "")[0]


def test_a_warning_as_an_error_is_told_and_not_raised(
    framework: Framework, losses: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "d\x1b[2J\u202emp"
    said, told = ran(framework, str(place), *STRICT)
    assert said == losses
    for words in warned_run.SAID:
        assert words in told, words
    assert told.count("warned_run.py:") >= len(warned_run.SAID), "each with the line of the run"
    assert "d\\u001b[2J\\u202emp" in told and "\x1b" not in told and "\u202e" not in told
    assert probe(["show", str(place / "step4")]) == 0
    assert probe(["show", str(place / "step7")]) == 1
    shown = capsys.readouterr()
    assert "N\\u001b[31mt" in shown.out and "d\\u001b[2J\\u202emp" in shown.err
    assert "\x1b" not in shown.out + shown.err and "\u202e" not in shown.out + shown.err


@pytest.mark.parametrize("how", ['exec "$@" 2>&-', 'exec "$@" 2> >(exec true)'], ids=["closed", "unread"])
def test_nobody_hears_it(framework: Framework, losses: str, how: str, tmp_path: Path) -> None:
    said, told = ran(framework, str(tmp_path / "dump"), *STRICT, how=how)
    assert said == losses and not told


def test_warnings_that_are_ignored_are_not_told(framework: Framework, losses: str, tmp_path: Path) -> None:
    said, told = ran(framework, str(tmp_path / "dump"), "-W", "ignore")
    assert said == losses and "Probe" not in told


def test_a_warning_of_the_run_is_told_as_often_as_without(framework: Framework, tmp_path: Path) -> None:
    """Python tells of a line once, until somebody changes the filters, even for a moment."""
    net = framework.sequence(framework.module_of("Net", lambda _, x: framework.functions.gelu(x)))
    told_before: dict[str, int] = {}
    with (
        framework.debugger(dump_path=str(tmp_path / "dump"), level="mix", task="statistics") as debugger,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("default")
        for step in range(4):
            with debugger.one_step(net):
                net(framework.ones(2, 2))
                if step:  # as the first begins, modules are imported
                    warnings.warn_explicit("mine", UserWarning, "run.py", 1, registry=told_before)
    assert [str(each.message) for each in told].count("mine") == 1
