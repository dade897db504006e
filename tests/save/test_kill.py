"""SIGKILL at any instant after save() has returned loses nothing: the record is there, its file is whole."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import pytest
from probe_format.read.verify import verify
from probe_format.write import recover

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
KILLS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """Starts a run that saves; gives its pid and the pipe on which it speaks."""
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, HERE / "saving_killed.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[writes],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"},
        text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def start(dump: Path) -> tuple[int, int]:
        process.stdin.write(json.dumps({"dump": str(dump), "said": writes}) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline()), reads

    yield start
    process.stdin.close()
    process.wait(10)
    os.close(reads)
    os.close(writes)


def kill_after(pid: int, said: int, lines: int, delay: float) -> set[str]:
    """Kill once so many lines were said, and a moment; gives everything that was said."""
    text = b""
    while text.count(b"\n") < lines and not text.endswith(b"closed\n"):
        text += os.read(said, 65536)
    time.sleep(delay)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while _alive(pid) or select.select([said], [], [], 0)[0]:
        if select.select([said], [], [], 0.01)[0]:
            text += os.read(said, 65536)
    whole, _, _ = text.rpartition(b"\n")
    return set(whole.decode().split())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def expected(record: Any) -> Any:
    from saving_killed import array

    name, number = record.name.split(".")[0], int(record.name.split(".")[1])
    if name == "array":
        return array(2 * number)
    values = array(2 * number + 1)
    return 2 * values if name == "tensor_grad" else values


@pytest.mark.parametrize("seed", range(KILLS))
def test_nothing_acknowledged_is_lost(server: Any, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    pid, said = server(tmp_path / "dump")
    acknowledged = kill_after(pid, said, choose.randrange(2, 150), choose.uniform(0, 0.004))
    closed = "closed" in acknowledged
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    assert rank.source == ("files" if closed else "journal")
    names = acknowledged - {"made", "closed"}
    assert names
    assert names <= set(rank.records.names)
    for record in rank.records:
        for tensor in record.tensors:
            assert np.array_equal(tensor.load(), expected(record)), tensor.name
        assert record.tensors or record.name not in names
    if not closed:
        (verdict,) = verify(tmp_path / "dump")
        assert verdict.state == "torn", verdict
        (outcome,) = recover(tmp_path / "dump")
        assert outcome.outcome == "whole"
        assert (rank.path / "debug.json").is_file()
        assert not (rank.path / "dump.json").exists()
        (verdict,) = verify(tmp_path / "dump")
        assert verdict.state == "recovered", verdict
        (again,) = probe_format.open(tmp_path / "dump").ranks
        assert again.records.names == rank.records.names
