"""Name where a difference comes from, and take what no run computed for no difference."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import numpy as np
import probe_analysis
import torch
import torch.nn.functional as F
from dumped_steps import dumped
from probe_analysis.compare.distance import ArgumentDifference
from torch import nn


def run(
    folder: Path,
    step: Callable[[nn.Module, int], Any],
    level: str = "mix",
    steps: int = 1,
    model: nn.Module | None = None,
    **how: Any,
) -> Path:
    torch.manual_seed(0)
    net = model or nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    given = net if level != "L1" else None
    return dumped(folder, lambda n: step(net, n), given, steps, level=level, **how)


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


def dump_held(folder: Path, use: Callable[[float], Any]) -> None:
    for name, value in (("a", 1.0), ("b", 7.0), ("nan", float("nan"))):
        run(folder / name, lambda net, n, value=value: use(value), "L1")


@pytest.mark.parametrize("use", [write_over, sharded])
def test_what_is_written_over_is_no_difference_and_not_given(tmp_path, use):
    dump_held(tmp_path, use)
    for other in ("b", "nan"):
        verdict = probe_analysis.diff(tmp_path / "a", tmp_path / other).verdict
        assert verdict.state == "same", verdict.sentence
    assert probe_analysis.first_non_finite(tmp_path / "nan").first is None


@pytest.mark.parametrize(
    ("use", "differs", "makes"),
    [
        (lambda value: held(value).view(8).narrow(0, 2, 6).exp(), "narrow", "exp"),  # a view of what is used
        (lambda value: held(value).add_(1.0), "add_", "add_"),
    ],
)
def test_memory_that_is_used_is_a_difference(tmp_path, use, differs, makes):
    dump_held(tmp_path, use)
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == f"Tensor.{differs}.0.forward" and "another input" in verdict.sentence
    found = probe_analysis.first_non_finite(tmp_path / "nan").first
    assert found.call.name == f"Tensor.{makes}.0.forward"


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


@pytest.mark.parametrize("parameter", ["weight", "bias"])
def test_a_gradient_that_only_one_run_has_not_finite_is_a_difference(tmp_path, parameter):
    good = run(tmp_path / "a", lambda net, n: net(X).square().sum().backward(), "L0")
    bad = edited(good, tmp_path / "b", **{f"1.1.__parameters_grad__{parameter}": math.inf})
    verdict = probe_analysis.diff(good, bad).verdict
    assert verdict.call.name == "Module.1.1.Linear.parameters_grad", verdict.sentence
    assert f"{parameter}.0 all finite against Max not finite" in verdict.sentence


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
    assert "has other parameters: 0.weight" in verdict.sentence  # these come first, whatever else differs
    assert "gets another input as well: input_args.0" in verdict.sentence


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


def edited(folder: Path, new: Path, **changes: float) -> Path:
    """Copy a dump of one step with the Max of some tensors multiplied: parts of a record's name and slot -> factor."""
    (document,) = folder.glob("**/dump.json")
    text = json.loads(document.read_text())
    for place, factor in changes.items():
        words = place.split("__")
        (name,) = (each for each in text["data"] if all(word in each for word in words[:-1]))
        (tensor,) = text["data"][name][words[-1]]
        for each in tensor if isinstance(tensor, list) else [tensor]:
            each["Max"] *= factor
    copy = new / document.relative_to(folder)
    copy.parent.mkdir(parents=True)
    copy.write_text(json.dumps(text))
    for other in ("construct.json", "stack.json"):
        (copy.parent / other).write_bytes((document.parent / other).read_bytes())
    return new


class Turned(nn.Module):
    """Give something of its own to a part, in which a mistake is first seen by the gradients."""

    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.out(self.query(x).roll(1, 1).contiguous())


def test_a_module_whose_forward_pass_is_almost_beyond_the_limit_is_named_by_that(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), Turned())
    good = run(tmp_path / "a", lambda _, n: net(X).sum().backward(), "L0", model=net)
    places = {"1.out__forward__input_args": 1 + 2.4e-6, "1.query__backward__input": 1.01}
    verdict = probe_analysis.diff(good, edited(good, tmp_path / "b", **places)).verdict
    assert verdict.call.name == "Module.1.Turned.forward.0", verdict.sentence
    assert "what its own code gives to Module.1.out.Linear.forward.0 does not" in verdict.sentence
    places.pop("1.out__forward__input_args")
    verdict = probe_analysis.diff(good, edited(good, tmp_path / "c", **places)).verdict
    assert verdict.call.name == "Module.1.query.Linear.backward.0", verdict.sentence


def test_gradients_of_wide_parameters_are_as_coarse_as_what_they_come_from(tmp_path):
    def step(net: nn.Module, n: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            net(X).sum().backward()

    good = run(tmp_path / "a", step, "L0")
    coarse = {"Module.0.__forward__output": 1 + 2**-8, "1.1.__parameters_grad__weight": 1 + 2**-8}
    found = probe_analysis.diff(good, edited(good, tmp_path / "b", **coarse))
    assert found.verdict.state == "within tolerance", found.sentence
    run(tmp_path / "c", lambda net, n: net(X).sum().backward(), "L0")
    wide = probe_analysis.diff(tmp_path / "c", edited(tmp_path / "c", tmp_path / "d", **coarse))
    assert wide.verdict.state == "different", wide.sentence


def test_where_a_dtype_ends_is_no_other_argument():
    ends = [repr(torch.finfo(dtype).min) for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    assert ArgumentDifference("input_args.1", ends[0], ends[1]).of_setting
    assert ArgumentDifference("input_args.1", ends[2], ends[1].lstrip("-")).of_setting
    assert not ArgumentDifference("input_args.1", ends[0], "-1e9").of_setting
    assert not ArgumentDifference("input_args.1", ends[0], "").of_setting


class Masked(nn.Module):
    """Make a mask by a function that another implementation does not need."""

    def __init__(self, *, needed: bool):
        super().__init__()
        self.inner, self.needed = nn.Linear(4, 4), needed

    def forward(self, x):
        return self.inner(x) + (torch.arange(4) * 0 if self.needed else 0)


def test_a_call_within_a_module_does_not_explain_what_the_module_gets(tmp_path):
    for name, shift in (("a", 0.0), ("b", 1.0)):
        torch.manual_seed(0)
        net, x = nn.Sequential(Masked(needed=not shift)), torch.from_numpy(X.numpy() + np.float32(shift))
        run(tmp_path / name, lambda _, n, net=net, x=x: net(x), model=net)
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Module.0.Masked.forward.0", verdict.sentence
    assert "gets another input" in verdict.sentence


class Residual(nn.Module):
    """Add what a part gives to what came in, and give the sum to another part."""

    def __init__(self):
        super().__init__()
        self.part, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(x + self.part(x).float())


def test_what_a_module_gives_its_parts_differs_by_what_they_gave_it(tmp_path):
    """A part is rounded to bfloat16; the sum with what came in is as far apart, though all calls before are equal."""

    def step(net: nn.Module, n: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            net(X)

    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Identity() for _ in range(5)), nn.Sequential(Residual()))
    good = run(tmp_path / "a", step, "L0", model=net)
    rounded = {"5.0.part__forward__output": 1 + 2**-9, "5.0.norm__forward__input_args": 1 + 2**-9}
    found = probe_analysis.diff(good, edited(good, tmp_path / "b", **rounded))
    assert found.verdict.state == "within tolerance", found.sentence
    wrong = {**rounded, "5.0.norm__forward__input_args": 1.05}
    verdict = probe_analysis.diff(good, edited(good, tmp_path / "c", **wrong)).verdict
    assert verdict.call.name == "Module.5.0.Residual.forward.0", verdict.sentence


@pytest.mark.parametrize("factor", [1.0, 1.02])
def test_what_one_run_passes_on_unchanged_the_other_passes_on(tmp_path, factor):
    """bfloat16 explains as much of a gradient, but not on the way between two modules."""
    for name, scale, half in (("a", 1.0, False), ("b", factor, True)):
        torch.manual_seed(0)
        net, x = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))), torch.randn(32, 64)

        def step(
            net: nn.Module, n: int, x: torch.Tensor = x, half: bool = half, scale: float = scale
        ) -> None:
            scaled = net[0].register_forward_hook(
                lambda *each: each[2].register_hook(lambda g: g * scale) and None
            )
            with torch.autocast("cpu", torch.bfloat16, enabled=half), scaled:
                net(x).square().mean().backward()

        run(tmp_path / name, step, "L0", model=net)
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert (verdict.state == "different") == (factor > 1.0), verdict.sentence
    assert factor == 1.0 or verdict.call.name == "Module.0.Linear.backward.0", verdict.sentence


@pytest.mark.parametrize("rate", [1.0, 1.05])
def test_an_update_is_judged_by_its_rate_along_the_gradient(tmp_path, rate):
    """The gradients are apart by as much as the update is wrong, and clipped by a norm that is apart as well."""

    def step(net: nn.Module, x: torch.Tensor, half: bool, rate: float) -> None:
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            net(x).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.sub_(parameter.grad * (rate if name == "1.weight" else 1.0))

    for name, half, wrong in (("a", False, 1.0), ("b", True, rate)):
        torch.manual_seed(0)
        net, x = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)), torch.randn(32, 64)
        how = {"level": "L0", "steps": 2, "model": net, "sketch": True}
        run(tmp_path / name, lambda _, n, net=net, x=x, h=half, w=wrong: step(net, x, h, w), **how)
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert (verdict.state == "different") == (rate > 1.0), verdict.sentence
    assert rate == 1.0 or "Module.1.Linear.forward.0 has other parameters: 1.weight" in verdict.sentence


class Gated(nn.Module):
    """Multiply two projections of the input: by two layers, or fused by one product."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.gate, self.up, self.fused = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            gate, up = F.linear(x, torch.cat([self.gate.weight, self.up.weight])).chunk(2, -1)
            return gate * up
        return self.gate(x) * self.up(x)


def test_two_layers_that_one_run_fuses_are_another_implementation(tmp_path: Path) -> None:
    """The backward pass of a function is matched with its forward pass, not with another one of its name."""

    def dump(fused: bool) -> Path:
        torch.manual_seed(0)
        model = nn.Sequential(*(Gated(fused) for _ in range(3)))
        return run(tmp_path / str(fused), lambda net, _: net(X).sum().backward(), model=model)

    found = probe_analysis.diff(dump(False), dump(True))
    assert found.verdict.state in ("same", "within tolerance"), found.verdict.sentence


class Normed(nn.Module):
    """Normalise twice, the second time in training mode or not, in one of several layers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.linear(x))


def test_a_layer_in_eval_mode_is_named_by_its_argument(tmp_path: Path) -> None:
    """A call that one run has alone beside it (the count of batches) is no other implementation: siblings make it."""

    def dump(mode: str) -> Path:
        torch.manual_seed(0)
        model = nn.Sequential(*(Normed() for _ in range(4)))
        model[1].train(mode == "train")
        return run(tmp_path / mode, lambda net, _: net(X[0]).sum().backward(), model=model)

    verdict = probe_analysis.diff(dump("train"), dump("eval")).verdict
    assert verdict.sentence.startswith("Functional.batch_norm.1.forward is called with other arguments")


class Uneven(nn.Module):
    """Round to a dtype; some layers call the function once more before."""

    def __init__(self, dtype: torch.dtype, again: bool) -> None:
        super().__init__()
        self.linear, self.dtype, self.again = nn.Linear(4, 4), dtype, again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.again:
            x = x.to(torch.float32)
        return self.linear(x).to(self.dtype).float()


def test_a_dtype_that_all_layers_have_is_none_that_one_has(tmp_path: Path) -> None:
    def dump(dtype: torch.dtype, *odd: int) -> Path:
        torch.manual_seed(0)
        made = [Uneven(torch.float32 if n in odd else dtype, n % 2 == 0) for n in range(3)]
        step = lambda net, _: net(X).sum().backward()  # noqa: E731
        return run(tmp_path / f"{dtype}{odd}", step, model=nn.Sequential(*made))

    narrow = dump(torch.bfloat16)
    assert probe_analysis.diff(dump(torch.float32), narrow).verdict.state == "within tolerance"
    assert probe_analysis.diff(dump(torch.bfloat16, 1), narrow).verdict.state == "different"


class Keyed(nn.Module):
    """Attend with biases, of which that of the keys changes nothing: its gradient is rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("level", ["mix", "L1"])
@pytest.mark.parametrize("fault", ["", "update"])
def test_what_adam_makes_of_a_gradient_that_is_rounding_alone_is_honest(
    tmp_path: Path, level: str, fault: str
) -> None:
    def dump(turned: bool) -> Path:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 16), Keyed(), nn.Linear(16, 16), nn.Linear(16, 4))
        nn.init.normal_(net[1].attention.in_proj_bias)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
        x = torch.randn(7, 9, 16)
        x = x.flip(0) if turned else x

        def step(_: nn.Module, n: int) -> None:
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
            if fault and turned and not n:
                with torch.no_grad():
                    net[1].attention.in_proj_weight.mul_(1.02)

        return run(tmp_path / f"{turned}", step, level=level, steps=2, model=net)

    verdict = probe_analysis.diff(dump(False), dump(True)).verdict
    assert verdict.state == ("different" if fault else "within tolerance"), verdict.sentence
