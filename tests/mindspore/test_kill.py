"""Promise 2: SIGKILL at any instant of a dumped step loses no record that had been made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from documents import leaves, rank_dir, records, strict, validate
from killing import Server, killed, names, serving, unkilled, without_files
from probe_format.cli.main import main as probe
from probe_format.journal.frames import read_journal


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(Path(__file__).with_name("mindspore_killed.py")) as found:
        yield found


@pytest.mark.parametrize(("task", "kills"), [("statistics", 10), ("tensor", 5)])
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
        after, delay = chance.randint(1, len(said)), chance.choice([0.0, 0.0, chance.uniform(0, 0.02)])
        heard = killed(server, folder, after, delay, **keys)
        here = rank_dir(folder / "dump")
        where = f"kill {i} of seed {seed}, after {heard[-1:]}"
        if not here.exists():
            assert not names(heard), where
            continue
        unread = (here / "records.journal").exists() and not (here / "report.json").exists()
        torn += unread
        status = probe(["recover", str(folder / "dump")])
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
                assert list(np.load(file).shape) == leaf["shape"], where
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


def test_a_run_without_graphs_leaves_one_dump(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is killed in PyNative leaves nothing that looks like a second, empty dump of graphs."""
    for after in (1, 20, 10**6):
        folder = tmp_path / str(after)
        heard = killed(server, folder, after, 0.0, level="L0")
        assert not (folder / "dump" / "graph").exists()
        if names(heard):
            probe(["verify", str(folder / "dump")])
            assert "/graph/" not in capsys.readouterr().out
            probe(["recover", str(folder / "dump")])  # nothing to do, where the run was over
            assert probe(["verify", str(folder / "dump")]) == 0
    assert len(names(heard)) > 5


def test_damage_is_told_apart_from_a_torn_tail(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = names(killed(server, tmp_path, 24, 0.0))
    journal = rank_dir(tmp_path / "dump") / "records.journal"
    data = bytearray(journal.read_bytes())
    at = data.index(b'"Cell.layers.3.Dense.forward.0"')
    data[at + 3] ^= 0xFF
    journal.write_bytes(data)
    assert probe(["recover", str(tmp_path / "dump")]) == 3
    assert capsys.readouterr()
    found = strict(rank_dir(tmp_path / "dump") / "dump.json")["data"]
    missing = set(heard) - found.keys()
    assert missing <= {"Cell.layers.3.Dense.forward.0", "Cell.layers.3.Dense.backward.0"}
    assert probe(["recover", str(tmp_path / "nothing")]) == 1
