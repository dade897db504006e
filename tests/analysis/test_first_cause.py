"""Name where a difference comes from, and take what no run computed for no difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import numpy as np
import probe_analysis
import torch
import torch.nn.functional as F
from probe_torch import PrecisionDebugger
from torch import nn


def run(
    folder: Path, step: Callable[[nn.Module, int], None], level: str = "mix", steps: int = 1, **how: Any
) -> Path:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    with PrecisionDebugger(dump_path=str(folder), level=level, task="statistics", **how) as debugger:
        for n in range(steps):
            debugger.start(net) if level != "L1" else debugger.start()
            step(net, n)
            debugger.stop()
            debugger.step()
    return folder


X = torch.arange(24.0).reshape(2, 3, 4) / 24


def held(value: float) -> torch.Tensor:
    """Return memory that holds something, as that of torch.empty may."""
    return torch.from_numpy(np.full((2, 4), value, np.float32))


def write_over(value: float) -> None:
    held(value).copy_(X[:, 0])
    held(value).uniform_(0, 1)
    torch.add(X[:, 0], 1.0, out=held(value))
    part = held(value)
    part[0] = X[0, 0]
    part[1] = X[1, 0]
    part.add_(1.0)


def sharded(value: float) -> None:
    """Gather parts in one piece of memory, as FSDP does."""
    memory = held(value).view(8)
    torch._foreach_copy_(list(torch.split(memory.narrow(0, 2, 6), [2, 4])), [X[0, 0, :2], X[0, 1]])
    memory[2:].add_(1.0)


@pytest.mark.parametrize("use", [write_over, sharded])
def test_what_is_written_over_is_no_difference_and_not_given(tmp_path, use):
    for name, value in (("a", 1.0), ("b", 7.0), ("nan", float("nan"))):
        run(tmp_path / name, lambda net, n, value=value: use(value), "L1")
    for other in ("b", "nan"):
        verdict = probe_analysis.diff(tmp_path / "a", tmp_path / other).verdict
        assert verdict.state == "same", verdict.sentence
    assert probe_analysis.first_non_finite(tmp_path / "nan").first is None


def test_a_view_of_what_is_used_is_a_difference(tmp_path):
    for name, value in (("a", 1.0), ("b", 7.0), ("nan", float("nan"))):
        run(tmp_path / name, lambda net, n, value=value: held(value).view(8).narrow(0, 2, 6).exp(), "L1")
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Tensor.narrow.0.forward" and "another input" in verdict.sentence
    assert probe_analysis.first_non_finite(tmp_path / "nan").first.call.name == "Tensor.exp.0.forward"


def test_memory_that_is_used_is_a_difference(tmp_path):
    for name, value in (("a", 1.0), ("b", 7.0), ("nan", float("nan"))):
        run(tmp_path / name, lambda net, n, value=value: held(value).add_(1.0), "L1")
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Tensor.add_.0.forward" and "another input" in verdict.sentence
    assert probe_analysis.first_non_finite(tmp_path / "nan").first.call.name == "Tensor.add_.0.forward"


def test_packed_sequences_of_two_runs_are_the_same(tmp_path):
    def step(net: nn.Module, n: int) -> None:
        lengths = torch.tensor([2, 3])
        nn.utils.rnn.pack_padded_sequence(X, lengths, batch_first=True, enforce_sorted=False)

    torch.full((2,), 77)  # memory for the next torch.empty
    run(tmp_path / "a", step, "L1")
    torch.full((2,), 66)
    verdict = probe_analysis.diff(tmp_path / "a", run(tmp_path / "b", step, "L1")).verdict
    assert verdict.state == "same", verdict.sentence


def loss_of(kind: str, out: torch.Tensor) -> torch.Tensor:
    target = torch.ones_like(out)
    out = out.sigmoid()
    return F.binary_cross_entropy(out, target) if kind == "right" else F.mse_loss(out, target)


@pytest.mark.parametrize("level", ["mix", "L1"])
def test_another_loss_function_is_named_itself(tmp_path, level):
    for kind in ("right", "wrong"):
        run(tmp_path / kind, lambda net, n, kind=kind: loss_of(kind, net(X)).backward(), level)
    verdict = probe_analysis.diff(tmp_path / "right", tmp_path / "wrong").verdict
    assert verdict.call.name == "Functional.binary_cross_entropy.0.forward", verdict.sentence
    assert "called in the first run alone" in verdict.sentence and "test_first_cause.py" in verdict.line


def test_another_gradient_is_named_at_the_outermost_module_that_gets_it(tmp_path):
    for kind in ("right", "wrong"):
        run(tmp_path / kind, lambda net, n, kind=kind: loss_of(kind, net(X)).backward(), "L0")
    verdict = probe_analysis.diff(tmp_path / "right", tmp_path / "wrong").verdict
    assert verdict.call.name == "Module.1.Sequential.backward.0", verdict.sentence
    assert "gets another gradient" in verdict.sentence and "not recorded before it" in verdict.sentence


def test_other_data_is_named_at_the_module_also_where_its_parameters_differ(tmp_path):
    for name, shift in (("a", 0.0), ("b", 1.0)):
        x = held(shift)  # made, and added to the weight, out of sight

        def step(net: nn.Module, n: int, shift: float = shift, x: torch.Tensor = x) -> None:
            net[0].weight.data.numpy()[:] += shift
            net(x)

        run(tmp_path / name, step)
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Module.0.Linear.forward.0", verdict.sentence
    assert (
        "gets another input: input_args.0" in verdict.sentence
        and "not recorded before it" in verdict.sentence
    )


def test_parameters_gradients_follow_from_the_gradient_that_their_module_gets(tmp_path):
    def step(scale: float) -> Callable[[nn.Module, int], None]:
        # not contiguous: the bias has its gradient before the module's backward call is completed
        x = X.clone().requires_grad_().transpose(0, 1)
        return lambda net, n: (net[0](x) * torch.tensor(scale)).sum().backward()

    for name, scale in (("a", 1.0), ("b", 3.0)):
        run(tmp_path / name, step(scale), "L0")
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Module.0.Linear.backward.0", verdict.sentence


def test_gradients_that_were_left_are_one_of_the_reasons_given(tmp_path):
    for zero in (True, False):

        def step(net: nn.Module, n: int, zero: bool = zero) -> None:
            if zero:
                net.zero_grad()
            net(X).sum().backward()

        run(tmp_path / str(zero), step, "L0", steps=2)
    verdict = probe_analysis.diff(tmp_path / "True", tmp_path / "False").verdict
    assert "parameters_grad" in verdict.call.name and "zero_grad" in verdict.sentence


def test_a_call_of_an_earlier_step_that_one_run_has_alone_is_named(tmp_path):
    for times in (1, 2):
        average = torch.ones(4)

        def step(net: nn.Module, n: int, times: int = times, average: torch.Tensor = average) -> None:
            for _ in range(times):
                average.mul_(0.5)

        run(tmp_path / str(times), step, "L1", steps=2)
    verdict = probe_analysis.diff(tmp_path / "1", tmp_path / "2").verdict
    assert verdict.call.name == "Tensor.mul_.0.forward"
    assert (
        "Before it, in step0/rank, Tensor.mul_.1.forward is called in the second run alone."
        in verdict.sentence
    )


@pytest.mark.parametrize("mode", ["output", "input", "forward", "backward"])
def test_what_data_mode_left_out_is_no_other_argument_or_result(mode, tmp_path):
    def step(net: nn.Module, n: int) -> None:
        net(X).sum().backward()

    for name, how in (("whole", {}), ("part", {"data_mode": [mode]})):
        run(tmp_path / name, step, **how)
    for pair in (("whole", "part"), ("part", "whole")):
        found = probe_analysis.diff(*(tmp_path / name for name in pair))
        verdict, notes = found.verdict, " ".join(found.runs[0].notes)
        if mode == "forward":  # as if nobody had called backward()
            assert "no backward records at all: no backward pass, or data_mode" in verdict.sentence
        else:
            assert verdict.state == "same", verdict.sentence
            assert ("data_mode" in notes) == (mode in ("output", "input"))


def test_inputs_that_were_not_recorded_are_not_said_to_agree(tmp_path):
    for name, shift in (("a", 0.0), ("b", 1.0)):
        run(tmp_path / name, lambda net, n, shift=shift: net(X + shift), data_mode=["output"])
    sentence = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict.sentence
    assert "Tensor.__add__.0.forward is the first with another result" in sentence
    assert "is not recorded (data_mode)" in sentence and "inputs agree" not in sentence
