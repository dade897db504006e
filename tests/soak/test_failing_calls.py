"""Each system call on the files of a dump fails once: the run is as without Probe, and the dump says what it lacks.

A sample with a fixed seed; all of it with PROBE_SOAK=1 (`PROBE_SOAK=1 hatch run test:unit tests/soak`: an hour).
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from documents import strict
from probe_format.errors import FormatError
from probe_format.read import verify

HERE = Path(__file__).parent
HOW = {
    **{
        name: getattr(errno, name)
        for name in ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR", "EROFS", "EBADF")
    },
    "cut short": 0,
    "SIGKILL": -1,
}
COUNT = 1000  # no call fails
SAMPLES = 24
RUNS = [name for name in ("torch", "mindspore", "save") if name == "save" or importlib.util.find_spec(name)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "failing_calls.c", "-ldl"], check=True
    )
    return library


@contextmanager
def server(shim: Path, run: str) -> Iterator[Any]:
    """What makes a run with a failing call: takes (n, how, folder), returns (status, calls, printed, said)."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1",
           "LD_PRELOAD": str(shim), "GLOG_v": "3"}  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, HERE / "failing_runs.py", run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdin is not None and process.stdout is not None

    def made(n: int, how: int, folder: Path) -> tuple[int, int, str, str]:
        folder.mkdir()
        process.stdin.write(json.dumps({"n": n, "how": how, "folder": str(folder)}) + "\n")
        process.stdin.flush()
        status, count = json.loads(process.stdout.readline())
        printed, said = ((folder / name).read_text(errors="replace") for name in ("printed", "said"))
        return status, int(count or 0), printed, said

    try:
        yield made
    finally:
        process.stdin.close()
        process.wait(60)


def records(dump: Path) -> dict[str, Any]:
    """The records of every step that has its files, by step and name."""
    found = {}
    for path in dump.rglob("dump.json"):
        for name, record in strict(path)["data"].items():
            found[f"{path.parent.relative_to(dump)} {name}"] = record
    return found


def agrees(found: Any, true: Any) -> bool:
    """Whether a value is the true one, as far as it is there: what is lost says so, and nothing is null instead."""
    if isinstance(found, dict) and "lost" in found:
        return True
    if isinstance(found, dict) and isinstance(true, dict):
        return all(key in true and agrees(value, true[key]) for key, value in found.items())
    if isinstance(found, list) and isinstance(true, list):
        return len(found) == len(true) and all(map(agrees, found, true))
    return found == true


@pytest.mark.parametrize("run", RUNS)
def test_a_run_with_a_failing_call_is_as_without_it(run: str, shim: Path, tmp_path: Path) -> None:
    with server(shim, run) as made:
        status, calls, truth, said = made(0, COUNT, tmp_path / "whole")
        assert status == 0 and calls > 30 and truth, said
        true = records(tmp_path / "whole" / "dump")
        every = [(n, how) for n in range(1, calls + 1) for how in HOW]
        cases = every if os.environ.get("PROBE_SOAK") else random.Random(19).sample(every, SAMPLES)
        for n, how in cases:
            case = f"{run}: call {n} of {calls}: {how}"
            folder = tmp_path / f"{n}-{how.replace(' ', '-')}"
            status, _, printed, said = made(n, HOW[how], folder)
            if how == "SIGKILL":
                assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (case, said)
                assert truth.startswith(printed), case
            elif status:  # refused before the run began
                assert not printed and "\nprobe_format.errors." in said and str(folder) in said, (case, said)
                continue
            else:
                assert printed == truth, (case, said)
                assert "Traceback" not in said, (case, said)
            check(folder / "dump", true, case, said)
            shutil.rmtree(folder)


def check(dump: Path, true: dict[str, Any], case: str, said: str) -> None:
    """Hold what is left to the truth, before and after `probe recover`."""
    if not any(dump.rglob("*")):
        return
    try:
        verdicts = {v.path: v for v in verify(dump)}
    except FormatError as error:
        assert "the run ended before" in str(error) or not any(dump.glob("step*/*")), case
        return
    found = records(dump)
    for name, record in found.items():
        assert name in true, (case, name, said)
        assert agrees(record, true[name]), (case, name, record, true[name], said)
    for path, verdict in verdicts.items():
        place = path.relative_to(dump)
        if verdict.state == "complete" and not any("lost" in note for note in verdict.notes):
            wanted = {name for name in true if name.startswith(f"{place} ")}
            assert wanted == {name for name in found if name.startswith(f"{place} ")}, (case, verdict, said)
