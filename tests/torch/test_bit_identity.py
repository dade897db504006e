"""Promise 1: a watched run is the unwatched run, bit for bit."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from dumping import opened, records, report
from torch import Tensor, nn

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")
CHANGED = [name for name in zoo.VARIANTS if name != "plain"]


@cache
def _unwatched(case: str, variant: str) -> dict[str, Tensor] | str:
    try:
        return zoo.train(zoo.CASES[case], zoo.VARIANTS[variant])
    except RuntimeError as e:
        if "could not create a primitive" not in str(e):
            raise
        return str(e)


def unwatched(case: str, variant: str) -> dict[str, Tensor]:
    """The run without Probe. A processor may have no kernel for it: no bfloat16 LSTM without AVX-512, for one,
    where the case `cells` is what remains of the recurrent ones.
    """
    found = _unwatched(case, variant)
    if isinstance(found, str):
        pytest.skip(f"PyTorch alone cannot do this on this processor: {found}")
    return found


def assert_same(case: str, variant: str, watch: zoo.Watch) -> None:
    truth = unwatched(case, variant)
    assert zoo.finite(truth)
    changed = zoo.differences(truth, zoo.train(zoo.CASES[case], zoo.VARIANTS[variant], watch))
    assert not changed, f"{len(changed)} of {len(truth)} values changed: {changed[:8]}"


@pytest.mark.parametrize(
    ("case", "level", "task"),
    [
        *((case, "mix", "tensor") for case in zoo.CASES),
        *((case, "L0", "statistics") for case in zoo.CASES),
        *(
            ("llama", level, task)
            for level in LEVELS
            for task in TASKS
            if (level == "mix") != (task == "tensor")
        ),
    ],
)
def test_levels_and_tasks(case: str, level: str, task: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level, task=task) as debugger:
        assert_same(case, "plain", debugger)
    for step in (0, 1):
        names = records(tmp_path / "dump", step)
        assert any(name.endswith("forward") or ".forward." in name for name in names)
        assert any("backward" in name for name in names), "nothing of the backward pass was looked at"


@pytest.mark.parametrize("variant", CHANGED)
@pytest.mark.parametrize("case", zoo.CASES)
def test_variants_at_mix(case: str, variant: str, tmp_path: Path) -> None:
    with opened(tmp_path, level="mix") as debugger:
        assert_same(case, variant, debugger)
    assert records(tmp_path / "dump", 1)


@pytest.mark.parametrize(("level", "task"), [("L0", "statistics"), ("mix", "tensor")])
@pytest.mark.parametrize(
    ("case", "variant"),
    [
        *((case, "func") for case in ("gpt", "llama", "moe", "t5", "ssm", "inplace")),
        *((case, "per sample") for case in ("gpt", "llama", "t5", "ssm", "inplace")),
    ],
)
def test_gradients_by_torch_func(case: str, variant: str, level: str, task: str, tmp_path: Path) -> None:
    truth = zoo.train(zoo.CASES[case], zoo.FUNC[variant])
    with opened(tmp_path, level=level, task=task) as debugger:
        seen = zoo.train(zoo.CASES[case], zoo.FUNC[variant], debugger)
    assert zoo.finite(truth) and not zoo.differences(truth, seen)
    for step in (0, 1):
        assert any("backward" in name for name in records(tmp_path / "dump", step))
        assert not report(tmp_path / "dump", step)["faults"]


@pytest.mark.parametrize(
    "variant", ["checkpoint", "checkpoint_reentrant", "autocast", "swap", "fused", "modes"]
)
@pytest.mark.parametrize(("case", "level"), [("gpt", "L0"), ("cnn", "L0"), ("t5", "L1")])
def test_variants_at_the_single_levels(case: str, level: str, variant: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level, task="tensor") as debugger:
        assert_same(case, variant, debugger)


@pytest.mark.parametrize(
    "keys",
    [
        {"summary_mode": "md5"},
        {"summary_mode": "xor"},
        {"task": "structure"},
        {"async_dump": True},
        {"precision": "high"},
        {"views": True},
        {"extra_info": False},
        {"list": ["linear"]},
        {"task": "tensor", "data_mode": ["backward"]},
    ],
    ids=str,
)
def test_other_settings(keys: dict[str, Any], tmp_path: Path) -> None:
    with opened(tmp_path, **keys) as debugger:
        assert_same("llama", "plain", debugger)


class Meddler:
    """A looker-on with one bad habit."""

    def __init__(self, habit: str) -> None:
        self.habit = habit
        self.handles: list[Any] = []

    def start(self, model: nn.Module) -> None:
        if self.habit == "draws from torch":
            torch.rand(1)
        elif self.habit == "draws from python":
            random.random()
        elif self.habit == "draws from numpy":
            np.random.rand()
        elif self.habit == "one bit of one gradient":
            weight = next(p for p in model.parameters() if p.requires_grad)
            self.handles.append(weight.register_hook(self._nudge))
        elif self.habit == "full backward hooks":
            for module in model.modules():
                self.handles.append(module.register_full_backward_hook(lambda *_: None))

    @staticmethod
    def _nudge(grad: Tensor) -> Tensor:
        moved = grad.clone()
        at = int(moved.abs().argmax())
        moved.view(-1)[at] = torch.nextafter(moved.view(-1)[at], torch.tensor(float("inf")))
        return moved

    def stop(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def step(self) -> None: ...


@pytest.mark.parametrize(
    "habit",
    [
        "draws from torch",
        "draws from python",
        "draws from numpy",
        "one bit of one gradient",
        "full backward hooks",
    ],
)
def test_these_tests_can_fail(habit: str) -> None:
    """Each way of meddling is caught; torch's full backward hooks are one of them."""
    with pytest.raises(AssertionError, match="values changed"):
        assert_same("llama", "plain", Meddler(habit))


def test_a_zero_that_changes_its_sign_is_a_difference() -> None:
    assert zoo.differences({"a": torch.tensor([0.0])}, {"a": torch.tensor([-0.0])}) == ["a"]
    assert not zoo.differences({"a": torch.tensor([float("nan")])}, {"a": torch.tensor([float("nan")])})
