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
from killing import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(Path(__file__).with_name("killed.py")) as found:
        yield found


@pytest.mark.parametrize("mode", MODES)
def test_killed_at_random_instants(server: Server, mode: str, tmp_path: Path) -> None:
    kills = 3 if mode.startswith("packed") else 25  # PROBE_KILLS=20 was, and is, for a change of packs
    check_random_kills(server, tmp_path, kills=kills, longest=0.003, **MODES[mode])


def test_damage_is_told_apart_from_a_torn_tail(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_damage_in_the_journal(server, tmp_path, capsys, after=40, module="Module.layers.3.Linear")
