"""The page "From msprobe" names what the installed msprobe has: commands, calls, their arguments, exports, keys."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import clients
import pytest
from probe_torch import PrecisionDebugger

pytestmark = pytest.mark.slow

#: Run by msprobe's python. What a file of MindSpore's exports is read, as MindSpore is not there.
ASK = """
import argparse, inspect, json, pathlib, re, sys
import msprobe.msprobe as cli, msprobe.pytorch as pt
from msprobe.core.dump.common_config import CommonConfig

class Asked(dict):
    keys_asked = set()
    def get(self, key, default=None):
        self.keys_asked.add(key)
        return super().get(key, default)

commands = []
add = argparse._SubParsersAction.add_parser
argparse._SubParsersAction.add_parser = lambda self, name, **more: commands.append(name) or add(self, name, **more)
sys.argv = ["msprobe"]
try:
    cli.main()
except SystemExit:
    pass
debugger = pt.PrecisionDebugger
calls = [name for name in dir(debugger) if name[0] != "_" and callable(getattr(debugger, name))]
arguments = {name: list(inspect.signature(getattr(debugger, name)).parameters) for name in ["__init__", *calls]}
folder = pathlib.Path(pt.__file__).parents[1]
exported = {name for name, value in vars(pt).items() if name[0] != "_" and callable(value)}
exported.update(re.findall(r"'(\\w+)'", (folder / "mindspore/__init__.py").read_text().split("__all__")[1]))
CommonConfig(Asked(task="statistics", level="L0", rank=[], step=[]))
for task in ("statistics", "tensor", "acc_check"):
    debugger._get_task_config(task, Asked({task: Asked()}))
print()
print(json.dumps([commands, calls, arguments, sorted(exported), sorted(Asked.keys_asked)]))
"""

#: No names of a user's.
UNNAMED = {"self"}


@pytest.fixture(scope="module")
def asked() -> Any:
    said = subprocess.run(
        [clients.msprobe_python(), "-c", ASK], capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(said.stdout.splitlines()[-1])


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
