"""The page "From msprobe" names what the installed msprobe has: commands, calls, their arguments, exports, keys."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import clients
import pytest
from probe_torch import PrecisionDebugger

pytestmark = pytest.mark.slow

#: No names of a user's.
UNNAMED = {"self"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    script = Path(__file__).with_name("what_msprobe_has.py")
    said = clients.msprobe(tmp_path_factory.mktemp("asked"), script=str(script))
    return json.loads(said.splitlines()[-1])


def test_every_call_takes_the_arguments_of_msprobes(asked: Any, tmp_path: Path) -> None:
    theirs = {name: [each for each in takes if each not in UNNAMED] for name, takes in asked[2].items()}
    with PrecisionDebugger(dump_path=str(tmp_path), level="L0") as debugger:
        ours = {name: list(inspect.signature(getattr(debugger, name)).parameters) for name in theirs}
    assert {"__init__", "start", "save", "register_custom_api"} <= theirs.keys()
    shared = {name: [each for each in ours[name] if each in takes] for name, takes in theirs.items()}
    assert shared == theirs


def test_the_page_names_all_that_msprobe_has(asked: Any) -> None:
    commands, calls, arguments, exported, keys = asked
    assert len(commands) >= 12 and "start" in calls and "rank_id" in arguments["start"]
    assert "PrecisionDebugger" in exported and {"level", "risk_level", "white_list"} <= set(keys)
    page = (clients.ROOT / "docs" / "from-msprobe.md").read_text()
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    taken = {name for call in ("__init__", "start", "save") for name in arguments[call]}
    named = {*commands, *calls, *taken, *exported, *keys} - UNNAMED
    assert sorted(named - words) == []
