"""A fault of Probe's own never reaches the user's run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import opened, records, report
from hostile import HOSTILE, Raises
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.recorder import Recorder
from probe_runtime.session.step import DumpingStep
from probe_torch.tensors.leaf import TensorLeaf
from torch import nn


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("broken on purpose")


@pytest.mark.parametrize("where", ["resume", "write_files", "end"])
def test_a_fault_in_start_stop_or_step(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, call = nn.Sequential(nn.Linear(2, 2)), nn.Module.__dict__["__call__"]
    with opened(tmp_path, level="mix") as debugger:
        with (
            monkeypatch.context() as patch,
            pytest.warns(RuntimeWarning, match=r"fault of its own.*broken on purpose"),
        ):
            patch.setattr(DumpingStep, where, broken)
            debugger.start(net)
            net(torch.ones(1, 2)).sum().backward()
            debugger.stop()
            debugger.step()
        debugger.start(net)
        net(torch.ones(1, 2)).sum().backward()
        debugger.stop()
        debugger.step()
    assert nn.Module.__dict__["__call__"] is call
    assert records(tmp_path / "dump", step=1)


@pytest.mark.parametrize(
    ("part", "where"), [(Recorder, "_enter"), (Recorder, "_exit"), (BackwardRecords, "_described")]
)
def test_a_fault_in_a_tap_is_counted_and_the_tap_goes_off(
    part: type, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(3, requires_grad=True)
    monkeypatch.setattr(part, where, broken)
    with opened(tmp_path, level="L1", max_faults=3) as debugger, pytest.warns(RuntimeWarning, match="faults"):
        debugger.start()
        for _ in range(5):
            torch.sin(x).sum().backward()
        debugger.stop()
        debugger.step()
    assert torch.equal(x.grad, 5 * torch.cos(torch.ones(3)))  # type: ignore[arg-type]
    said = report(tmp_path / "dump")
    assert sum(f["count"] for f in said["faults"]) >= 3
    assert (tmp_path / "dump/step0/rank/dump_error_info.log").read_text().count("broken on purpose") >= 1
    if where == "_enter":
        assert any("switched off after 3 faults" in why for why in said["counts"]["left_out"])


def test_a_fault_in_one_tensor_costs_that_value_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TensorLeaf.leaf

    def some(self: TensorLeaf, slot: Any, value: Any, path: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.shape == (7,):
            raise KeyError("broken on purpose")
        return whole(self, slot, value, path)

    monkeypatch.setattr(TensorLeaf, "leaf", some)
    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        torch.dot(torch.ones(7), torch.ones(7))
        torch.sin(torch.ones(3))
        debugger.stop()
        debugger.step()
    data = records(tmp_path / "dump")
    assert "broken on purpose" in data["Torch.dot.0.forward"]["input_args"][0]["unsupported"]
    assert data["Torch.dot.0.forward"]["output"][0]["Max"] == 7.0
    assert data["Torch.sin.0.forward"]["input_args"][0]["Max"] == 1.0


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_no_argument_raises_into_the_run(level: str, tmp_path: Path) -> None:
    class Sink(nn.Module):
        def forward(self, value: Any, x: torch.Tensor, kw: Any) -> Any:
            return [value, x * 2, kw]

    net = nn.Sequential()
    net.add_module("sink", Sink())
    x = torch.ones(3, requires_grad=True)
    with opened(tmp_path, level=level, task="tensor") as debugger:
        debugger.start(net)
        for value in HOSTILE.values():
            assert net.sink(value, x, kw=value)[0] is value
            net.sink([value], x, kw={"a": value})[1].sum().backward()
        debugger.stop()
        debugger.step()
    data = records(tmp_path / "dump")
    calls = [name for name in data if name.startswith("Module.sink.Sink.forward")]
    assert len(calls) == 2 * len(HOSTILE)
    assert all(data[name]["input_args"][1]["Norm"] for name in calls)
    assert not report(tmp_path / "dump")["faults"]


@pytest.mark.parametrize("times", [1, 5])
def test_an_exception_that_cannot_say_what_it_is_is_the_users_still(times: int, tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise Raises

    net = nn.Sequential(Fails())
    with opened(tmp_path, level="mix", max_faults=3) as debugger:
        debugger.start(net)
        for _ in range(times):
            with pytest.raises(Raises):
                net(torch.ones(2))
            with pytest.raises(Raises):
                torch.add(torch.ones(2), Operand())  # type: ignore[call-overload]
        debugger.stop()
        debugger.step()
    assert records(tmp_path / "dump")["Module.0.Fails.forward.0"]["raised"].startswith("Raises: ")
    assert not report(tmp_path / "dump")["faults"]


class Operand:
    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise Raises
