"""Promise 2: SIGKILL at any instant of a dumped step loses no record that had been made."""

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
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import probe_format
import pytest
import torch
from dumping import leaves, rank_dir, records, strict, write_config
from probe_format.cli import main as probe

SCHEMAS = Path(probe_format.__file__).parent / "schema"


@attrs.frozen
class Server:
    """The process that forks the runs."""

    process: subprocess.Popen[str]
    said: tuple[int, int]

    def launch(self, config: Path) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"config": str(config), "said": self.said[1]}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@attrs.frozen
class Lines:
    """Lines as they come through the pipe, read unbuffered."""

    fd: int
    seen: list[str] = attrs.field(factory=list)
    rest: bytearray = attrs.field(factory=bytearray)

    def wait(self, count: int) -> None:
        """Until `count` lines have come (or the run's last)."""
        deadline = time.monotonic() + 60
        while len(self.seen) < count and "stepped" not in self.seen:
            assert time.monotonic() < deadline, f"the run is stuck after {self.seen[-3:]}"
            select.select([self.fd], [], [], 1.0)
            self.drain()

    def drain(self) -> None:
        """Everything that is in the pipe now."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self.rest.extend(data)
        *whole, last = self.rest.split(b"\n")
        self.seen.extend(line.decode() for line in whole)
        self.rest[:] = last


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    said = os.pipe()
    os.set_blocking(said[0], False)
    os.set_inheritable(said[1], True)
    here = Path(__file__).parent
    path = os.pathsep.join([*(p for p in sys.path if p), str(here)])
    process = subprocess.Popen(
        [sys.executable, str(here / "killed.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[said[1]],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    yield Server(process, said)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(10)
    os.close(said[0])
    os.close(said[1])


def gone(pid: int) -> None:
    """Wait until a killed process, which nobody reaps but the server, is no more."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/stat")
        try:
            if status.read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.0005)


def unkilled(server: Server, folder: Path, **keys: Any) -> tuple[list[str], dict[str, Any]]:
    """What a run says when nobody kills it, and its records."""
    lines = Lines(server.said[0])
    pid = server.launch(write_config(folder, **keys))
    lines.wait(10**6)
    gone(pid)
    lines.drain()
    assert lines.seen[-1] == "stepped"
    return lines.seen, strict(rank_dir(folder / "dump") / "dump.json")["data"]


def killed(server: Server, folder: Path, after: int, delay: float, **keys: Any) -> list[str]:
    """Kill a run `delay` seconds after its line number `after`; every line that it said."""
    lines = Lines(server.said[0])
    pid = server.launch(write_config(folder, **keys))
    lines.wait(after)
    time.sleep(delay)
    with suppress(ProcessLookupError):  # it may have ended
        os.kill(pid, signal.SIGKILL)
    gone(pid)
    lines.drain()
    return lines.seen


def names(said: list[str]) -> list[str]:
    return [line for line in said if "." in line]


@cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def validate(folder: Path) -> None:
    """Every JSON file of the directory: strict, and what its schema says."""
    for name in ("dump", "stack", "construct", "report"):
        problem = next(schema(name).iter_errors(strict(folder / f"{name}.json")), None)
        assert problem is None, f"{name}.json: {problem}"


def without_files(value: Any) -> Any:
    """A record less what depends on when the background writer was stopped."""
    if isinstance(value, dict):
        return {k: without_files(v) for k, v in value.items() if k not in ("data_name", "lost")}
    return [without_files(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("task", "kills"), [("statistics", 50), ("tensor", 25)])
def test_killed_at_random_instants(server: Server, task: str, kills: int, tmp_path: Path) -> None:
    keys = {"task": task}
    said, truth = unkilled(server, tmp_path / "whole", **keys)
    assert set(names(said)) <= truth.keys(), "the run says names that no record has"
    chance = random.Random()
    seed = chance.randrange(2**32)
    chance.seed(seed)
    torn = acknowledged = 0
    for i in range(kills):
        folder = tmp_path / str(i)
        after, delay = chance.randint(1, len(said)), chance.choice([0.0, 0.0, chance.uniform(0, 0.003)])
        heard = killed(server, folder, after, delay, **keys)
        here = rank_dir(folder / "dump")
        where = f"kill {i} of seed {seed}, after {heard[-1:]}"
        if not here.exists():
            assert not names(heard), where
            continue
        unread = (here / "records.journal").exists() and not (here / "report.json").exists()
        torn += unread
        status = probe(["recover", str(folder / "dump")])
        assert status == 0 if unread else status in (0, 1), where
        if not (here / "dump.json").exists():
            assert not names(heard), where
            continue
        validate(here)
        found = strict(here / "dump.json")["data"]
        acknowledged += len(names(heard))
        lost = [name for name in names(heard) if name not in found]
        assert not lost, f"{where}: {len(lost)} records lost: {lost[:5]}"
        changed = [n for n in names(heard) if without_files(found[n]) != without_files(truth[n])]
        assert not changed, f"{where}: {changed[:3]}: {found[changed[0]]} instead of {truth[changed[0]]}"
        for leaf in leaves(found):
            if leaf.get("data_name"):
                file = here / "dump_tensor_data" / leaf["data_name"]
                assert list(torch.load(file, weights_only=True).shape) == leaf["shape"], where
        assert probe(["verify", str(folder / "dump")]) == 0, where
    assert torn > kills // 3, f"only {torn} of {kills} kills came in the middle of a step"
    assert acknowledged > kills


def test_recover_says_what_it_did(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = killed(server, tmp_path, 20, 0.0)
    assert probe(["recover", str(tmp_path / "dump")]) == 0
    out = capsys.readouterr().out
    found = records(tmp_path / "dump")
    assert f"{len(found)} records" in out
    assert probe(["show", str(tmp_path / "dump")]) == 0
    assert "layers" in capsys.readouterr().out
    assert len(names(heard)) > 5


def test_damage_is_told_apart_from_a_torn_tail(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = names(killed(server, tmp_path, 40, 0.0))
    journal = rank_dir(tmp_path / "dump") / "records.journal"
    data = bytearray(journal.read_bytes())
    at = data.index(b'"Module.layers.3.Linear.forward.0"')
    data[at + 3] ^= 0xFF
    journal.write_bytes(data)
    assert probe(["recover", str(tmp_path / "dump")]) == 3
    assert capsys.readouterr()
    found = strict(rank_dir(tmp_path / "dump") / "dump.json")["data"]
    missing = set(heard) - found.keys()
    assert missing <= {"Module.layers.3.Linear.forward.0", "Module.layers.3.Linear.backward.0"}
    assert probe(["recover", str(tmp_path / "nothing")]) == 1
