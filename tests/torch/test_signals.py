"""What a signal's handler or a trace raises (a request's time-out) is the run's, wherever in Probe it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import opened, records, report
from launching import FORKS
from probe_format.journal import events
from probe_format.write import Claim, RankWriter
from probe_runtime.collect import GradientTap
from probe_runtime.collect.collector import Collector
from probe_runtime.collect.walk import Part
from probe_runtime.session.step import DumpingStep
from probe_torch.hooks import gradients
from probe_torch.tensors.leaf import TensorLeaf
from signalled import PLACES as SHARED
from signalled import WAYS, Late, rings_in
from torch import nn

PLACES = SHARED | {
    "its result": (Part, "results"),
    "a tensor": (TensorLeaf, "tensor"),
    "the graph is walked": (gradients, "add_consumers"),
    "a hook on a node": (GradientTap, "fire"),
    "a gradient is recorded": (events, "back"),
    "a parameter's gradient": (Collector, "parameter_gradient"),
    "a region of the step": (Collector, "push"),
    "a region's end": (Collector, "pop"),
}
AT_L1 = {"a region of the step", "a region's end"}  # no function is replaced at L0


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), 0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("place", PLACES)
def test_a_time_out_ends_the_request_and_the_next_is_recorded_whole(
    place: str, level: str, way: str, tmp_path: Path
) -> None:
    if level == "L0" and place in AT_L1:
        level = "L1"
    model, optimizer = made()
    with opened(tmp_path, level=level) as debugger:
        with rings_in(*PLACES[place], way) as times, pytest.raises(Late), debugger.one_step(model):
            train(model, optimizer)
        optimizer.zero_grad()
        for _ in range(2):
            with debugger.one_step(model):
                train(model, optimizer)
    assert times == [1]
    assert [report(tmp_path / "dump", step)["faults"] for step in range(3)] == [[], [], []]
    assert list(records(tmp_path / "dump", 1)) == list(records(tmp_path / "dump", 2)) != []


def test_a_call_that_it_ended_says_so(tmp_path: Path) -> None:
    model, _ = made()
    with (
        opened(tmp_path, level="L0") as debugger,
        rings_in(Part, "results"),
        pytest.raises(Late),
        debugger.one_step(model),
    ):
        model(torch.ones(2, 4))
    (record,) = records(tmp_path / "dump").values()
    assert record["raised"] == "Late:" and record["input_args"] and not record["output"]


WHERE: dict[str, tuple[Any, str]] = {
    "start()": (DumpingStep, "resume"),
    "stop()": (DumpingStep, "write_files"),
    "step()": (RankWriter, "finish"),
    "no step yet": (Claim, "take"),
}


@pytest.mark.parametrize("where", WHERE)
def test_what_ends_a_call_of_the_debugger_costs_its_step_alone(
    where: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model, optimizer = made()
    with opened(tmp_path, level="mix") as debugger:
        for number in range(3):
            rings = number == 1
            try:
                if rings and where in ("start()", "no step yet"):
                    with rings_in(*WHERE[where]):
                        debugger.start(model)
                else:
                    debugger.start(model)
                train(model, optimizer)
                if rings and where == "stop()":
                    with rings_in(*WHERE[where]):
                        debugger.stop()
                debugger.stop()
            except Late:
                train(model, optimizer)
            try:
                if rings and where == "step()":
                    with rings_in(*WHERE[where]):
                        debugger.step()
                else:
                    debugger.step()
            except Late:
                assert rings
    one, other = (list(records(tmp_path / "dump", step)) for step in (0, 2))
    assert one == other != []
    said = [str(one.message) for one in recwarn if "handler raised Late" in str(one.message)]
    assert [f"step 1 ended in {where}" in text for text in said] == [True] * (where != "no step yet")


RUN = """
import os, signal, sys, torch
from torch import nn
from probe_runtime.session.step import DumpingStep

class Late(Exception): pass
def ring(*_): raise Late
signal.signal(signal.SIGUSR1, ring)

def rings_in(name):
    original = getattr(DumpingStep, name)
    def called(*given):
        setattr(DumpingStep, name, original)
        os.kill(os.getpid(), signal.SIGUSR1)
        return original(*given)
    setattr(DumpingStep, name, called)

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
late = []
for number in range(10):
    if number in (2, 4, 6):
        rings_in({2: "resume", 4: "write_files", 6: "end"}[number])
    try:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    except Late:
        late.append(number)
    optimizer.zero_grad()
print(late)
"""


@pytest.mark.slow
def test_the_steps_of_a_run_are_found_after_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RUN)
    words = ("--level", "mix", "--dump_path", "dump", "--task", "statistics", str(script))
    found = FORKS.run("-m", "probe_format", "run", *words, cwd=tmp_path)
    assert found.stdout == "[2, 4, 6]\n" and "looking for steps ended" not in found.stderr
    whole = [list(records(tmp_path / "dump", step)) for step in (0, 1, 7, 8)]
    assert whole == [whole[0]] * 4 != [[]] * 4
