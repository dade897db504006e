"""`probe plan`: the answer, the exit code, and one clear sentence for each misuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_runtime.planning.command import main

MODULE = """
import torch
from torch import nn

def small():
    return nn.Sequential(nn.Linear(4, 4)), (torch.randn(2, 4),)

def trained():
    model = nn.Sequential(nn.Linear(4, 4))
    more = {"loss": lambda out: out.square().mean(), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    return model, torch.randn(2, 4), more

def huge():
    return nn.Sequential(nn.Linear(1 << 21, 1 << 21)), torch.empty(1, 1 << 21)

def wrong():
    return "a model"

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module to plan and a configuration, which is the current one."""
    (tmp_path / "planned_nets.py").write_text(MODULE)
    config = {"task": "tensor", "level": "L0", "dump_path": str(tmp_path / "dump")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "planned_nets", raising=False)
    return tmp_path


@pytest.mark.parametrize("words", [["small"], ["trained"], ["small", "--meta"]])
def test_a_plan(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, *more = words
    assert main([f"planned_nets:{name}", "--config", "config.json", *more]) == 0
    assert capsys.readouterr().out.startswith("One step of one rank at level L0, task tensor, writes ")
    assert not (folder / "dump").exists()


def test_a_disk_too_small_is_exit_code_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["planned_nets:huge", "--config", "config.json", "--meta"]) == 1
    assert "In the way:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("planned_nets", {}, "package.module:function"),
        ("no_such_module:f", {}, "No module named 'no_such_module'"),
        ("planned_nets:nothing", {}, "has no attribute 'nothing'"),
        ("planned_nets:number", {}, "not a function"),
        ("planned_nets:wrong", {}, "must return (model, inputs)"),
        ("planned_nets:small", {"level": "L9"}, "L9"),
        ("planned_nets:small", {"level": "debug"}, "can be planned"),
    ],
)
def test_misuse(
    name: str, config: dict[str, Any], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps({"dump_path": str(folder / "dump"), **config}))
    assert main([name, "--config", "config.json"]) == 2
    out = capsys.readouterr()
    assert said in out.err and not out.out
