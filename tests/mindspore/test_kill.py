"""Promise 2: SIGKILL at any instant of a dumped step loses no record that had been made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_kill import (
    MODES,
    check_damage_in_the_journal,
    check_random_kills,
    test_recover_says_what_it_did,  # noqa: F401  a test of this module
)
from killing import Server, killed, names, serving
from probe_format.cli.main import main as probe

pytestmark = [pytest.mark.once, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(Path(__file__).with_name("mindspore_killed.py")) as found:
        yield found


def test_a_run_without_graphs_leaves_one_dump(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is killed in PyNative leaves nothing that looks like a second, empty dump of graphs."""
    for after in (1, 20, 10**6):
        folder = tmp_path / str(after)
        heard = killed(server, folder, after, level="L0")
        assert not (folder / "dump" / "graph").exists()
        if names(heard):
            probe(["verify", str(folder / "dump")])
            assert "/graph/" not in capsys.readouterr().out
            probe(["recover", str(folder / "dump")])  # nothing to do, where the run was over
            assert probe(["verify", str(folder / "dump")]) == 0
    assert len(names(heard)) > 5


@pytest.mark.parametrize("mode", MODES)
def test_killed_at_random_instants(server: Server, mode: str, tmp_path: Path) -> None:
    kills = 3 if mode.startswith("packed") else 6
    check_random_kills(server, tmp_path, kills=kills, longest=0.02, **MODES[mode])


def test_damage_is_told_apart_from_a_torn_tail(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_damage_in_the_journal(server, tmp_path, capsys, after=24, module="Cell.layers.3.Dense")
