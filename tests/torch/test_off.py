"""Promise 3: after stop() nothing of Probe is left, and while it is started it is a good guest."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import subprocess
import sys
import warnings
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import zoo
from dumping import dumped, opened, rank_dir, records, report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OWNERS = ("torch", "numpy", "copy", "pickle", "multiprocessing", "builtins", "random", __name__)
# Filled by torch itself as it runs (caches, counters, what a first backward pass imports).
TORCH_ITSELF = ("torch._dynamo", "torch._inductor", "torch._logging", "torch.utils._sympy", "torch.testing")


def namespaces() -> dict[str, dict[str, Any]]:
    """Every attribute of every loaded torch module and of every class in them."""
    found: dict[str, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.split(".")[0] not in OWNERS:
            continue
        if name.startswith(TORCH_ITSELF):
            continue
        found[name] = dict(vars(module))
        for value in list(vars(module).values()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some names are deprecated
                is_class = isinstance(value, type)
            if is_class and value.__module__.split(".")[0] in OWNERS:
                found[f"{value.__module__}.{value.__qualname__}"] = dict(vars(value))
    found["Tensor's base"] = dict(vars(torch.Tensor.__mro__[1]))
    return found


def moved(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """Attributes that are another object now, or that came or went."""
    missing = object()
    return [
        f"{owner}.{name}"
        for owner, names in before.items()
        for name in names.keys() | after.get(owner, {}).keys()
        if names.get(name, missing) is not after.get(owner, {}).get(name, missing)
        and not isinstance(names.get(name), ModuleType)  # submodules that were imported meanwhile
        and not isinstance(after.get(owner, {}).get(name), ModuleType)
        and name not in ("__warningregistry__", "__annotations__", "next_id")  # the last one counts hooks
    ]


def hooks(model: nn.Module) -> dict[str, Any]:
    """All that can hang on a model: hooks, instance attributes, class, and the parameters' hooks."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        state = vars(module)
        found[name] = {
            "class": type(module),
            "attributes": sorted(state),
            "hooks": {k: dict(v) for k, v in state.items() if k.endswith("_hooks") and v},
            "forward": inspect.unwrap(module.forward).__func__,  # type: ignore[attr-defined]
        }
    for name, p in model.named_parameters():
        found[f"parameter {name}"] = (
            dict(p._backward_hooks or {}),
            dict(getattr(p, "_post_accumulate_grad_hooks", None) or {}),
            sorted(vars(p)),
        )
    return found


def train_once(watch: Any, case: str = "gpt") -> nn.Module:
    with zoo.fixed():
        model, optimizer = zoo.build(zoo.CASES[case])
        zoo.step(zoo.CASES[case], zoo.PLAIN, model, optimizer, watch)
    return model


@pytest.fixture(autouse=True)
def warm() -> None:
    """What torch imports and caches on first use is not Probe's doing."""
    train_once(None)
    list(DataLoader(TensorDataset(torch.zeros(2, 1))))
    str(torch.zeros(2))


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_every_attribute_is_the_original_again(level: str, tmp_path: Path) -> None:
    before = namespaces()
    tensor_names = dict(torch.Tensor.__dict__)
    call = nn.Module.__call__
    with opened(tmp_path, level=level) as debugger:
        train_once(debugger)
        # Off is off after stop() and step(), not only after the debugger is closed.
        assert dict(torch.Tensor.__dict__) == tensor_names
        assert nn.Module.__call__ is call
        assert not moved(before, namespaces())
        train_once(debugger)
        assert not moved(before, namespaces())
    assert not moved(before, namespaces())
    assert records(tmp_path / "dump", 1)


def test_no_device_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That begins CUDA, and who forks afterwards can use none."""

    def asked(*_: Any) -> bool:
        raise AssertionError("who asks?")

    model = nn.Linear(2, 2)
    for owner in (torch.cuda, getattr(torch, "accelerator", torch.cuda)):
        for name in {"is_available", "device_count", "current_device_index", "_lazy_init"} & set(vars(owner)):
            monkeypatch.setattr(owner, name, asked)
    with dumped(tmp_path, model, level="mix"):
        model(torch.ones(2)).sum().backward()
    assert len(records(tmp_path / "dump")) > 3
    assert report(tmp_path / "dump")["faults"] == []


def test_something_was_patched_while_started(tmp_path: Path) -> None:
    """The comparison above would see a patch."""
    before = namespaces()
    with dumped(tmp_path, level="L1"):
        during = moved(before, namespaces())
    assert {"torch.nn.functional.linear", "torch.Tensor.add", "torch.matmul"} <= set(during)


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("case", ["gpt", "cnn", "rnn", "oddities"])
def test_no_hook_is_left(case: str, level: str, tmp_path: Path) -> None:
    with zoo.fixed():
        model, optimizer = zoo.build(zoo.CASES[case])
    model.register_forward_hook(print_nothing)
    before = hooks(model)
    with opened(tmp_path, level=level) as debugger, zoo.fixed():
        zoo.step(zoo.CASES[case], zoo.PLAIN, model, optimizer, debugger)
        assert hooks(model) == before


def print_nothing(*_: Any) -> None:
    """A hook of the user's own."""


def test_a_graph_built_while_started_is_quiet_after_stop(tmp_path: Path) -> None:
    with opened(tmp_path) as debugger:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        with debugger.one_step(model):
            loss = model(torch.randn(2, 4)).sum()
        before = {p: p.read_bytes() for p in sorted((tmp_path / "dump").rglob("*")) if p.is_file()}
        loss.backward()
        assert model[0].weight.grad is not None
        debugger.start(model)
        debugger.stop()
        debugger.step()
        after = {p: p.read_bytes() for p in before}
    assert after == before
    assert not any("backward" in name for name in records(tmp_path / "dump", 1))


def test_an_exception_in_the_step_takes_nothing_along(tmp_path: Path) -> None:
    before = namespaces()
    with pytest.raises(ZeroDivisionError), opened(tmp_path) as debugger:
        model = nn.Linear(2, 2)
        debugger.start(model)
        model(torch.ones(1, 2))
        raise ZeroDivisionError
    assert not moved(before, namespaces())
    assert any(".forward" in name for name in records(tmp_path / "dump"))


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    with opened(tmp_path) as debugger:
        model = train_once(debugger)
        seen = weakref.ref(model), weakref.ref(next(model.parameters()))
        del model
        gc.collect()
        assert [ref() for ref in seen] == [None, None]


# ---------------------------------------------------------------- a good guest while started
@pytest.fixture(params=["L0", "L1", "mix"])
def started(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with zoo.fixed():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        model.register_forward_hook(print_nothing)
    with opened(tmp_path, level=request.param) as debugger:
        debugger.start(model)
        model(torch.ones(1, 4)).sum().backward()
        yield model
        debugger.stop()
        debugger.step()
    assert records(tmp_path / "dump")


def test_a_deep_copy_computes_with_its_own_weights(started: nn.Module) -> None:
    twin = copy.deepcopy(started)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    x = torch.ones(1, 4)
    assert torch.count_nonzero(twin(x)) == 0
    assert torch.count_nonzero(started(x)) > 0
    assert hooks(twin).keys() == hooks(started).keys()


LOADED = """
import sys, torch
for file in sys.argv[1:]:
    print(torch.load(file, weights_only=False)(torch.ones(1, 4)).shape)
"""


def test_a_saved_model_loads_where_probe_is_not(tmp_path: Path) -> None:
    model, levels = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), ("L0", "L1", "mix")
    files = [str(tmp_path / f"{level}.pt") for level in levels]
    for level, file in zip(levels, files, strict=True):
        with dumped(tmp_path / level, model, level=level):
            model(torch.ones(1, 4)).sum().backward()
            torch.save(model, file)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", LOADED, *files]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[1, 4]") == len(levels)


def test_script_trace_and_export(started: nn.Module) -> None:
    x = torch.ones(1, 4)
    expected = started(x)
    plain = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    assert torch.equal(torch.jit.script(plain)(x), plain(x))
    assert torch.equal(torch.jit.trace(plain, x)(x), plain(x))
    assert torch.equal(torch.fx.symbolic_trace(plain)(x), plain(x))
    assert torch.equal(torch.export.export(plain, (x,)).module()(x), plain(x))
    assert torch.equal(started(x), expected)


def test_faults_are_none_in_an_ordinary_step(tmp_path: Path) -> None:
    with opened(tmp_path) as debugger:
        train_once(debugger, "oddities")
    assert report(tmp_path / "dump")["faults"] == []
    assert not (rank_dir(tmp_path / "dump") / "dump_error_info.log").exists()
