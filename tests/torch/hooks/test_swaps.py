"""torch.utils.swap_tensors, by itself and through Module.to and load_state_dict: it works, and names stay right."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import agrees, dumped, opened, records, report
from loops import Nothing
from torch import Tensor, nn
from torch.utils import swap_tensors  # bound early

NOTHING = Nothing()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


@contextmanager
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def by_hand(model: nn.Sequential) -> None:
    swap_tensors(model[0].weight, nn.Parameter(model[0].weight.detach() * 2))


def among_each_other(model: nn.Sequential) -> None:
    """The weights of two layers trade places, with what hangs on them."""
    torch.utils.swap_tensors(model[2].weight, model[4].weight)


def by_to(model: nn.Sequential) -> None:
    with swapping():
        model.to(torch.float64)
        model.to(torch.float32)


def by_loading(model: nn.Sequential) -> None:
    with swapping():
        model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})


def train(model: nn.Sequential) -> dict[str, Tensor]:
    """One pass; the loss, the weights and their gradients by name."""
    loss = model(torch.full((2, 3), 0.5)).square().sum()
    loss.backward()
    seen = {"loss": loss.detach()}
    for name, p in model.named_parameters():
        assert p.grad is not None
        seen |= {name: p.detach().clone(), f"{name}.grad": p.grad.clone()}
    return seen


def run(swap: Callable[[nn.Sequential], None], when: str, debugger: Any = NOTHING) -> list[dict[str, Tensor]]:
    """Two steps of two passes, with a swap between the passes."""
    model, seen = net(), []
    for _ in range(2):
        debugger.start(model)
        seen.append(train(model))
        if when == "while started":
            swap(model)
        else:
            debugger.stop()
            if when == "after stop":
                swap(model)
            debugger.start(model)
        model.zero_grad()
        seen.append(train(model))
        debugger.stop()
        debugger.step()
        if when == "across steps":
            swap(model)
        model.zero_grad()
    for p in model.parameters():
        assert p._post_accumulate_grad_hooks is None and not weakref.getweakrefs(p)  # type: ignore[attr-defined]
    return seen


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("when", ["while started", "after stop", "across steps"])
@pytest.mark.parametrize("swap", [by_hand, among_each_other, by_to, by_loading])
def test_swaps(swap: Callable[[nn.Sequential], None], when: str, level: str, tmp_path: Path) -> None:
    truth = run(swap, when)
    before = torch.utils.weakref  # type: ignore[attr-defined]
    with opened(tmp_path, level=level, task="tensor") as debugger:
        seen = run(swap, when, debugger)
    assert torch.utils.weakref is before  # type: ignore[attr-defined]
    for one, other in zip(truth, seen, strict=True):
        assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
    for step in (0, 1):
        data = records(tmp_path / "dump", step)
        assert not report(tmp_path / "dump", step)["faults"]
        for i, expected in enumerate(truth[2 * step : 2 * step + 2]):
            for layer in ("0", "2", "4") if level != "L1" else ():
                base, arrival = f"Module.{layer}.Linear", ".1" if i else ""
                for kind in ("weight", "bias"):
                    weight = data[f"{base}.forward.{i}"]["parameters"][kind]
                    assert agrees(weight, expected[f"{layer}.{kind}"])
                    (grad,) = data[f"{base}.parameters_grad{arrival}"][kind]
                    assert agrees(grad, expected[f"{layer}.{kind}.grad"])
            if level == "L1":
                for n, layer in enumerate(("0", "2", "4")):
                    given = data[f"Functional.linear.{3 * i + n}.forward"]["input_args"]
                    assert agrees(given[1], expected[f"{layer}.weight"])


def test_any_leaf_of_the_step_can_be_swapped(tmp_path: Path) -> None:
    x, w = torch.ones(2, 3, requires_grad=True), torch.full((4, 3), 2.0, requires_grad=True)
    with dumped(tmp_path, level="L1"):
        torch.nn.functional.linear(x, w).sum().backward()
        grad, w.grad = w.grad, None
        assert grad is not None
        torch.utils.swap_tensors(grad, torch.full((4, 3), 5.0))
        torch.utils.swap_tensors(x, torch.full((2, 3), 7.0, requires_grad=True))
        torch.nn.functional.linear(x, w).sum().backward()
    data = records(tmp_path / "dump")
    assert [data[f"Functional.linear.{i}.forward"]["input_args"][0]["Max"] for i in (0, 1)] == [1.0, 7.0]
    assert [data[f"Functional.linear.{i}.backward"]["output"][1]["Max"] for i in (0, 1)] == [2.0, 14.0]
    assert w.grad is not None and torch.equal(w.grad, torch.full((4, 3), 14.0))


def test_a_hook_of_the_users_on_a_swapped_parameter_is_not_ours_to_move(tmp_path: Path) -> None:
    """torch leaves it with the content that was swapped away; the run must be the one without Probe."""
    called: dict[bool, list[str]] = {True: [], False: []}
    for watched in (True, False):
        model = net()
        model[2].weight.register_post_accumulate_grad_hook(lambda p, w=watched: called[w].append("early"))
        with opened(tmp_path / str(watched), level="L0") as debugger:
            if watched:
                debugger.start(model)
            train(model)
            by_to(model)
            model[0].weight.register_post_accumulate_grad_hook(lambda p, w=watched: called[w].append("late"))
            train(model)
            if watched:
                debugger.stop()
                debugger.step()
    assert called[True] == called[False] and "late" in called[True]
