"""A warning, or a line of the log, reaches the user in whatever way the user asked for, and never the run."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from probe_runtime.notice import notice

BEGIN = "import logging, sys, warnings\nfrom probe_runtime.notice import log, log_once, notice\n"


def told(folder: Path, code: str, *options: str) -> str:
    """What a script says on stderr; pytest itself would catch the warnings. options: of Python."""
    script = folder / "script.py"
    script.write_text(f"{BEGIN}{code}print('ended')\n", "utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, *options, str(script)], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "ended\n", done.stderr
    return done.stderr


def test_a_filter_that_raises_shows_it_as_the_default_does(tmp_path: Path) -> None:
    code = "for _ in range(3):\n    notice('a\\x1b[2J')\nnotice('a\\x1b[2J', UserWarning)\nnotice('b')\n"
    said = told(tmp_path, code, "-W", "error")
    assert said == told(tmp_path, code, "-W", "default")
    assert said.count("script.py:4: RuntimeWarning: a\\u001b[2J\n") == 1
    assert "script.py:5: UserWarning: a\\u001b[2J\n" in said and "script.py:6: RuntimeWarning: b\n" in said


def test_a_filter_that_ignores_is_obeyed(tmp_path: Path) -> None:
    assert not told(tmp_path, "notice('a')\n", "-W", "ignore")
    assert not told(tmp_path, "warnings.filterwarnings('ignore', message='a')\nnotice('a')\n", "-W", "error")


def test_where_warnings_are_caught_one_that_a_filter_raises_is_caught_too() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        notice("caught")
    assert [(str(w.message), w.filename) for w in caught] == [("caught", __file__)]


@pytest.mark.parametrize("action", ["error", "always"])
def test_where_the_user_s_own_way_to_show_warnings_fails(action: str, tmp_path: Path) -> None:
    code = "def refuse(*_): raise OSError\nwarnings.showwarning = refuse\nnotice('first\\nsecond')\n"
    assert told(tmp_path, code, "-W", action) == "first\nsecond\n"


@pytest.mark.parametrize("action", ["error", "always"])
def test_stderr_is_closed(action: str, tmp_path: Path) -> None:
    assert not told(
        tmp_path, "sys.stderr.close()\nnotice('a')\nlog_once('p', 'a')\nsys.stderr = None\n", "-W", action
    )


def test_the_log_says_a_warning_once_and_a_handler_that_raises_is_passed_over(tmp_path: Path) -> None:
    code = (
        "class Refuses(logging.Handler):\n    def emit(self, record): raise OSError\n"
        "logging.getLogger('q').addHandler(Refuses())\nlog('q', 'x', logging.ERROR)\n"
        "for _ in range(2):\n    log_once('p', 'told %s\\x1b')\nlog('p', 'of no interest')\n"
    )
    assert told(tmp_path, code) == "told %s\\u001b\n"
