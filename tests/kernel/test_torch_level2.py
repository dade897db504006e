"""PrecisionDebugger(level="L2") of probe-torch: one call in each wanted step, numbered as at level L1."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probe_format.errors import ConfigError, UsageError  # noqa: E402
from probe_torch import PrecisionDebugger  # noqa: E402
from recorded_npu import ORDER, Npu, Watcher  # noqa: E402

F = torch.nn.functional


def write(tmp_path: Path, **keys: Any) -> str:
    path = tmp_path / "config.json"
    top = {"task": "tensor", "level": "L2", "dump_path": str(tmp_path / "out"), **keys}
    path.write_text(json.dumps(top))
    return str(path)


def step(debugger: PrecisionDebugger | None) -> Any:
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    if debugger is not None:
        debugger.start()
    y = torch.log_softmax(x, 1)
    loss = F.cross_entropy(x, torch.tensor([0, 1, 2, 0])) + y.sum() + F.linear(x, torch.eye(3)).relu().sum()
    loss.backward()
    if debugger is not None:
        debugger.stop()
        debugger.step()
    return x.grad


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_wanted_steps_only(npu: Npu, tmp_path: Path, direction: str) -> None:
    plain = step(None)
    before = F.linear
    config = write(tmp_path, step=[1, 2], list=[f"Functional.linear.0.{direction}"], data_mode=["input"])
    with PrecisionDebugger(config) as debugger:
        for _ in range(4):
            assert torch.equal(step(debugger), plain)
    assert npu.calls == ORDER * 2
    names = [file.relative_to(tmp_path / "out") for file, _ in npu.configs]
    assert names == [Path(f"step{n}/kernel_config_{os.getpid()}.json") for n in (1, 2)]
    assert [c["dump"]["dump_path"] for _, c in npu.configs] == [
        str(tmp_path / f"out/step{n}") for n in (1, 2)
    ]
    assert {c["dump"]["dump_mode"] for _, c in npu.configs} == {"input"}
    assert not list(tmp_path.rglob("dump.json"))
    assert F.linear is before


def test_a_block_and_each_call_of_a_function_is_one_step(npu: Npu, tmp_path: Path) -> None:
    config = write(tmp_path, step=[1, 2], list=["Functional.linear.0.forward"])
    with PrecisionDebugger(config) as debugger:

        @debugger.one_step()
        def each() -> None:
            F.linear(torch.ones(2), torch.eye(2))

        for _ in range(2):
            each()
        with debugger.one_step():
            F.linear(torch.ones(2), torch.eye(2))
    assert npu.calls == ORDER * 2
    assert [file.parent.name for file, _ in npu.configs] == ["step1", "step2"]


def test_calls_inside_a_call_do_not_count(npu: Npu, tmp_path: Path) -> None:
    """Functional.cross_entropy calls log_softmax: at level L1 that is not a record, so it is not a number here."""
    config = write(tmp_path, list=["Functional.log_softmax.0.forward"])
    with PrecisionDebugger(config) as debugger:
        debugger.start()
        with Watcher(npu):
            F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]))
            assert npu.calls == []
            F.log_softmax(torch.ones(2, 3), 1)
        assert npu.calls == ORDER
        assert "_log_softmax" in npu.ran
        debugger.stop()


def test_a_gradient_after_stop_still_belongs_to_the_step(npu: Npu, tmp_path: Path) -> None:
    config = write(tmp_path, list=["Torch.sin.0.backward"])
    x = torch.ones(3, requires_grad=True)
    with PrecisionDebugger(config) as debugger:
        debugger.start()
        y = torch.sin(x)
        debugger.stop()
        y.sum().backward()
        debugger.step()
    assert npu.calls == ORDER


def test_what_never_came_is_told(npu: Npu, tmp_path: Path) -> None:
    config = write(tmp_path, list=["Functional.lineer.0.forward"])
    with (
        PrecisionDebugger(config) as debugger,
        pytest.warns(RuntimeWarning, match=r"did you mean Functional\.linear"),
    ):
        step(debugger)


def test_what_cannot_be_is_told_at_once(npu: Npu, tmp_path: Path) -> None:
    config = write(tmp_path, task="statistics", list=["a", "b"], scope=["Torch.a.0.forward", "Torch.b.0.forward"],
                   data_mode=["forward"])  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(config)
    assert {p.where for p in caught.value.problems} == {"scope", "list", "task", "data_mode"}
    config = write(tmp_path, list=["Module.fc.Linear.forward.0"])
    with pytest.raises(ConfigError, match="is no API"):
        PrecisionDebugger(config)


def test_without_torch_npu_it_says_so_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torch_npu is not installed"):
        PrecisionDebugger(write(tmp_path, list=["Functional.linear.0.forward"]))


def test_modules_are_not_for_this_level(npu: Npu, tmp_path: Path) -> None:
    with PrecisionDebugger(write(tmp_path, list=["Functional.linear.0.forward"])) as debugger:
        with pytest.raises(UsageError, match="module_dump is for levels L0 and mix"):
            debugger.module_dump(torch.nn.ReLU(), "x")
        with pytest.raises(UsageError, match="records no functions"):
            debugger.register_custom_api(torch, "sin")
