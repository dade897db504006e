"""Promise 2 for every framework: what is done with runs that are killed. Each framework says how often, and where."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import leaves, rank_dir, records, strict, tensor_bytes, validate
from killing import Server, killed, names, unkilled
from probe_format.cli.main import main as probe
from probe_format.journal import read_journal
from probe_format.schema import is_tensor, why_lost

__all__ = ["MODES", "check_damage_in_the_journal", "check_random_kills", "test_recover_says_what_it_did"]

#: What a run is asked for that is killed: keys of the configuration. Late: numbers on a device, files behind the run.
MODES: dict[str, dict[str, Any]] = {
    "statistics": {},
    "tensor": {"task": "tensor"},
    "late": {"task": "tensor", "async_dump": True},
    "packed": {"task": "tensor", "tensor_files": "packed"},
    "packed late": {"task": "tensor", "tensor_files": "packed", "async_dump": True},
}
ENDED = "the process ended before this was written"


def unlike(found: Any, true: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield where a recovered value is not as the run that nobody killed has it: the place, and what is lost there.

    What is lost must say so; else it is ``wrong``.
    """
    gone = why_lost(found) and not is_tensor(found)
    if gone and (is_tensor(true) or true is None):  # MindSpore knows at the end which never come
        yield place, "gradient"
    elif isinstance(found, dict) and isinstance(true, dict):
        lost = {key: str(found.get(key)).endswith(ENDED) for key in ("lost", "unsupported")}
        told = {"data_name", "data_crc32"} if lost["lost"] else set()
        told |= {"Max", "Min", "Mean", "Norm"} if lost["unsupported"] else set()
        for key in told & true.keys():
            yield f"{place}.{key}", "wrong" if found.get(key) is not None else "late"
        added = {"incomplete"} | {key for key in lost if lost[key]}
        for key in (found.keys() | true.keys()) - told - added:
            if found.get("incomplete") and not found.get(key):
                continue  # the call had not returned
            yield from unlike(found.get(key, "<absent>"), true.get(key, "<absent>"), f"{place}.{key}")
    elif isinstance(found, list) and isinstance(true, list) and len(found) == len(true):
        for i, both in enumerate(zip(found, true, strict=True)):
            yield from unlike(*both, f"{place}.{i}")
    elif found != true:
        yield f"{place}: {str(found)[:200]} instead of {str(true)[:200]}", "wrong"


def check_random_kills(server: Server, folder: Path, *, kills: int, longest: float, **keys: Any) -> None:
    """Kill a run at random instants: what it acknowledged is recovered, and what is lost of the rest says so.

    kills: how often (PROBE_KILLS, where it is set); of each four, one between two gradients of a call, one right after
    a record. longest: seconds at most, else, between a line of the run and its end. keys: the configuration.
    """
    said, truth = unkilled(server, folder / "whole", **keys)
    files = tensor_bytes(rank_dir(folder / "whole" / "dump"))
    assert set(names(said)) <= truth.keys(), "the run says names that no record has"
    made = [number for number, line in enumerate(said, 1) if names([line])]
    between = [number for number, line in enumerate(said, 1) if line == "between"]
    kills = int(os.environ.get("PROBE_KILLS", kills))
    chance = random.Random()
    seed = chance.randrange(2**32)
    chance.seed(seed)
    torn = acknowledged = 0
    late = keys.get("async_dump")
    lost: Counter[str] = Counter()
    for i in range(kills):
        run = folder / str(i)
        after, delay = chance.choice(made if i % 4 else between), None
        if i % 2:
            after = chance.randint(1, len(said))
            delay = chance.choice([longest / 10, longest]) * chance.random()
        heard = killed(server, run, after, delay, **keys)
        here = rank_dir(run / "dump")
        where = f"kill {i} of seed {seed}, after {heard[-1:]}"
        if not here.exists():
            assert not names(heard), where
            continue
        unread = (here / "records.journal").exists() and not (here / "report.json").exists()
        torn += unread
        status = probe(["recover", str(run / "dump")])
        begun = unread and not read_journal(here / "records.journal").is_empty  # it has a record
        assert status == 0 if begun else status in (0, 1), where
        if not (here / "dump.json").exists():
            assert not names(heard), where
            continue
        validate(here)
        found = strict(here / "dump.json")["data"]
        acknowledged += len(names(heard))
        missing = [name for name in names(heard) if name not in found]
        assert not missing, f"{where}: {len(missing)} records lost: {missing[:5]}"
        assert found.keys() <= truth.keys(), where
        for name, record in found.items():
            true = truth[name]
            if name.endswith("parameters_grad") and name not in heard:  # it has those that came
                true = {key: value for key, value in true.items() if key in record}
            for place, what in unlike(record, true, name):
                lost[what] += 1
                assert what != "wrong", f"{where}: {place}"
                assert what != "gradient" or name not in heard, f"{where}: {place} was acknowledged"
                assert what != "late" or (late and "stopped" not in heard), f"{where}: {place}"
        here_too = tensor_bytes(here)
        for leaf in leaves(found):
            if name := leaf.get("data_name"):
                assert here_too[name] == files[name], where
        assert probe(["verify", str(run / "dump")]) == 0, where
    assert torn > kills // 3, f"only {torn} of {kills} kills came in the middle of a step"
    assert acknowledged > kills
    assert lost["gradient"], "no kill came between two gradients of a call"


def test_recover_says_what_it_did(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard = killed(server, tmp_path, 20)
    assert probe(["recover", str(tmp_path / "dump")]) == 0
    out = capsys.readouterr().out
    found = records(tmp_path / "dump")
    assert f"{len(found)} records" in out
    assert probe(["show", str(tmp_path / "dump")]) == 0
    assert "layers" in capsys.readouterr().out
    assert len(names(heard)) > 5


def check_damage_in_the_journal(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str], *, after: int, module: str
) -> None:
    """Change one byte of a killed run's journal: it is damage, not a torn tail, and costs that one call.

    after: the line of the run at which it is killed. module: whose forward record is damaged.
    """
    heard = names(killed(server, folder, after))
    journal = rank_dir(folder / "dump") / "records.journal"
    data = bytearray(journal.read_bytes())
    at = data.index(f'"{module}.forward.0"'.encode())
    data[at + 3] ^= 0xFF
    journal.write_bytes(data)
    assert probe(["recover", str(folder / "dump")]) == 3
    assert capsys.readouterr()
    found = strict(rank_dir(folder / "dump") / "dump.json")["data"]
    missing = set(heard) - found.keys()
    assert missing <= {f"{module}.forward.0", f"{module}.backward.0"}
    assert probe(["recover", str(folder / "nothing")]) == 1
