"""PrecisionDebugger(level="debug").save of probe-torch is the same code and gives the same files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probe_save as ps
import pytest
from probe_format.errors import ConfigError, UsageError
from saving import data, document

torch = pytest.importorskip("torch")

from probe_torch import PrecisionDebugger  # noqa: E402


def work(save: Callable[..., Any], step: Callable[[], None]) -> None:
    torch.manual_seed(0)
    for _ in range(2):
        x = torch.randn(3, 4, requires_grad=True)
        y = save({"y": x * 2, "n": 3}, "y")["y"]
        save(x, "x")
        save("text", "plain", save_backward=False)
        y.exp().sum().backward()
        step()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_the_same_files(tmp_path: Path, task: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": task, "level": "debug", "dump_path": str(tmp_path / "debugger")}))
    with PrecisionDebugger(str(config)) as debugger:
        debugger.start()
        work(PrecisionDebugger.save, PrecisionDebugger.step)
        debugger.stop()
    with ps.Saver(dump_path=tmp_path / "saver", task=task) as saver:
        work(saver.save, saver.step)
    for step in (0, 1):
        assert data(tmp_path / "debugger", step) == data(tmp_path / "saver", step)
        one, two = (document(tmp_path / d / f"step{step}" / "rank") for d in ("debugger", "saver"))
        assert one["framework"] == two["framework"] == "pytorch"
        assert one["tool"].startswith("probe-torch ")
        files = [
            {p.name: p.read_bytes() for p in (tmp_path / d / f"step{step}/rank/dump_tensor_data").glob("*")}
            for d in ("debugger", "saver")
        ]
        assert files[0] == files[1]
        assert bool(files[0]) == (task == "tensor")
        assert not list((tmp_path / "debugger").rglob("dump.json"))


def test_misuse_at_level_debug(tmp_path: Path) -> None:
    with PrecisionDebugger(dump_path=str(tmp_path / "a"), level="debug") as debugger:
        with pytest.raises(UsageError, match="module_dump is for levels L0 and mix"):
            debugger.module_dump(torch.nn.Linear(1, 1), "x")
        with pytest.raises(UsageError, match="records no functions"):
            debugger.register_custom_api(torch, "sin")
        with pytest.raises(UsageError, match="wants a name"):
            debugger.save(1, "")
        debugger.set_init_step(4)
        assert debugger.save(1, "x") == 1
    assert data(tmp_path / "a", 4)["x.0.debug"]["value"] == 1
    with pytest.raises(UsageError):
        debugger.save(1, "x")
    with pytest.raises(ConfigError, match="records none"):
        PrecisionDebugger(dump_path=str(tmp_path / "b"), level="debug", task="structure")
    with pytest.raises(ConfigError, match="already holds a dump"):
        PrecisionDebugger(dump_path=str(tmp_path / "a"), level="debug")
