"""Promise 2 for every framework: what is done with runs that are killed. Each framework says how often, and where."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from documents import leaves, rank_dir, records, strict, validate
from framework import Framework
from killing import Server, killed, names, unkilled, without_files
from probe_format.cli.main import main as probe
from probe_format.journal import read_journal

__all__ = ["check_damage_in_the_journal", "check_random_kills", "test_recover_says_what_it_did"]


def check_random_kills(
    server: Server, framework: Framework, folder: Path, *, kills: int, longest: float, **keys: Any
) -> None:
    """Kill a run at random instants: every record that it acknowledged is recovered, and is the true one.

    kills: how often, every second time right after a record. longest: seconds at most, else, between a line of the
    run and its end. keys: the configuration.
    """
    said, truth = unkilled(server, folder / "whole", **keys)
    assert set(names(said)) <= truth.keys(), "the run says names that no record has"
    made = [number for number, line in enumerate(said, 1) if names([line])]
    chance = random.Random()
    seed = chance.randrange(2**32)
    chance.seed(seed)
    torn = acknowledged = 0
    for i in range(kills):
        run = folder / str(i)
        after, delay = chance.choice(made), None
        if i % 2:
            after, delay = (
                chance.randint(1, len(said)),
                chance.choice([longest / 10, longest]) * chance.random(),
            )
        heard = killed(server, run, after, delay, **keys)
        here = rank_dir(run / "dump")
        where = f"kill {i} of seed {seed}, after {heard[-1:]}"
        if not here.exists():
            assert not names(heard), where
            continue
        unread = (here / "records.journal").exists() and not (here / "report.json").exists()
        torn += unread
        status = probe(["recover", str(run / "dump")])
        begun = unread and read_journal(here / "records.journal").events  # else killed before it wrote a byte
        assert status == 0 if begun else status in (0, 1), where
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
                assert framework.file_shape(file) == leaf["shape"], where
        assert probe(["verify", str(run / "dump")]) == 0, where
    assert torn > kills // 3, f"only {torn} of {kills} kills came in the middle of a step"
    assert acknowledged > kills


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
