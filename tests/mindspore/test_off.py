"""Promise 3: after stop() nothing of Probe is left in MindSpore, and an exception in the model changes nothing."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore
import mindspore_zoo as zoo
import pytest
from mindspore import Tensor, ops
from mindspore_dumping import collected, opened, rank_dir, records

OWNERS = ("mindspore", "numpy", "copy", "pickle", "builtins", __name__)


def namespaces() -> dict[str, dict[str, Any]]:
    """Every attribute of every loaded MindSpore module and of every class in them."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.split(".")[0] not in OWNERS:
            continue
        found[name] = dict(vars(module))
        for value in list(vars(module).values()):
            if isinstance(value, type) and str(getattr(value, "__module__", "")).split(".")[0] in OWNERS:
                found[f"{value.__module__}.{value.__qualname__}"] = dict(vars(value))
    found["Tensor's base"] = dict(vars(Tensor.__mro__[1]))
    return found


def changes(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """What another object stands at now. What appeared (lazy imports) does not count, unless it is ours."""
    found = []
    for owner, names in before.items():
        now = after.get(owner, {})
        found += [f"{owner}.{n}" for n, value in names.items() if n in now and now[n] is not value]
        found += [f"{owner}.{n} is gone" for n in names if n not in now]
        found += [
            f"{owner}.{n} is new"
            for n in now
            if n not in names and str(getattr(now[n], "__module__", "")).startswith("probe_")
        ]
    return found


def instances(model: Any) -> list[tuple[str, Any]]:
    """What the model's Cells hold, and the classes of it."""
    held = []
    for name, cell in model.cells_and_names():
        held += [
            (f"{name}.{key}", (id(value), type(value))) for key, value in vars(cell).items() if key[0] != "_"
        ]
        held.append((name, (type(cell), len(cell._forward_hook), len(cell._forward_pre_hook))))
    return held


# MindSpore's own counters and caches, which move in every run.
CACHES = (
    "__warningregistry__", "_cache", "_KERNEL_SEED", "HookHandle.unique_id", "Cell.total_instance_count",
)  # fmt: skip


@pytest.mark.parametrize("level", [*(pytest.param(x, marks=pytest.mark.once) for x in ("L0", "L1")), "mix"])
def test_nothing_is_left(level: str, tmp_path: Path) -> None:
    zoo.train(zoo.CASES["gpt"], "value_and_grad", steps=1)  # what MindSpore fills by itself
    with opened(tmp_path / "warm", level=level) as debugger:
        zoo.train(zoo.CASES["gpt"], "value_and_grad", debugger, steps=1)
    model = zoo.build(zoo.CASES["gpt"])
    batch = zoo.CASES["gpt"][1](zoo.np.random.default_rng(0))
    forward = mindspore.value_and_grad(model, None, model.trainable_params())
    forward(*batch)
    before, held = namespaces(), instances(model)
    with opened(tmp_path, level=level) as debugger:
        debugger.start(model)
        forward(*batch)
        debugger.stop()
        debugger.step()
        left = [c for c in changes(before, namespaces()) if not any(k in c for k in CACHES)]
        assert not left, left[:10]
        assert instances(model) == held
    assert records(tmp_path / "dump")


def test_an_exception_in_the_model_goes_through_and_leaves_nothing(tmp_path: Path) -> None:
    class Broken(mindspore.nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            ops.relu(x)
            raise KeyError("mine")

    model, before = Broken(), namespaces()
    with collected(tmp_path, model, level="mix"), pytest.raises(KeyError, match="mine"):
        model(Tensor([1.0]))
    left = [c for c in changes(before, namespaces()) if not any(k in c for k in CACHES)]
    assert not left, left[:10]
    assert "Functional.relu.0.forward" in records(tmp_path / "dump")


def test_tensors_are_let_go(tmp_path: Path) -> None:
    with opened(tmp_path, level="mix", task="tensor") as debugger:
        model = zoo.build(zoo.CASES["tied"])
        x, y = zoo.CASES["tied"][1](zoo.np.random.default_rng(0))
        debugger.start(model)
        mindspore.value_and_grad(model, None, model.trainable_params())(x, y)
        debugger.stop()
        debugger.step()
        gone = [weakref.ref(x), weakref.ref(model)]
        del x, y, model
        debugger.start(zoo.build(zoo.CASES["tied"]))
        debugger.stop()
        gc.collect()
        assert [ref() is None for ref in gone] == [True, True]


def test_between_steps_nothing_is_recorded(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1", step=[1]) as debugger:
        for _ in range(3):
            debugger.start()
            ops.relu(Tensor([1.0]))
            debugger.stop()
            ops.relu(Tensor([2.0]))
            debugger.step()
    assert not rank_dir(tmp_path / "dump", 0).exists() and not rank_dir(tmp_path / "dump", 2).exists()
    assert list(records(tmp_path / "dump", 1)) == ["Functional.relu.0.forward"]
