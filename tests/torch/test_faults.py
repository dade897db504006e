"""A fault of Probe's own never reaches the user's run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import opened, records, report
from probe_format.backward import BackwardRecords
from probe_format.recorder import Recorder
from probe_format.step import DumpedStep
from probe_torch.tensors import TensorLeaf
from torch import nn


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("broken on purpose")


@pytest.mark.parametrize("where", ["resume", "settle", "end"])
def test_a_fault_in_start_stop_or_step(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, call = nn.Sequential(nn.Linear(2, 2)), nn.Module.__dict__["__call__"]
    with opened(tmp_path, level="mix") as debugger:
        with (
            monkeypatch.context() as patch,
            pytest.warns(RuntimeWarning, match=r"fault of its own.*broken on purpose"),
        ):
            patch.setattr(DumpedStep, where, broken)
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
    ("part", "where"), [(Recorder, "_enter"), (Recorder, "_exit"), (BackwardRecords, "_told")]
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
    whole = TensorLeaf.tensor

    def some(self: TensorLeaf, slot: Any, t: torch.Tensor, path: Any) -> Any:
        if t.shape == (7,):
            raise KeyError("broken on purpose")
        return whole(self, slot, t, path)

    monkeypatch.setattr(TensorLeaf, "tensor", some)
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
