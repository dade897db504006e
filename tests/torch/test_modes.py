"""A user's modes and subclasses see the calls that they see without Probe: the same ones, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dumping import dumped, opened, records, report
from loops import Nothing
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

Calls = list[str]


class Functions(TorchFunctionMode):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(resolve_name(func) or repr(func))
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


CALLS: Calls = []


class Asked(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(resolve_name(func) or repr(func))
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapped(Tensor):
    """A wrapper subclass, as torch's own are made."""

    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor) -> Wrapped:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, requires_grad=elem.requires_grad
        )
        made.elem = elem.detach()
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(str(func))
        args, kwargs = tree_map_only(Wrapped, lambda t: t.elem, (args, kwargs or {}))
        return tree_map_only(Tensor, Wrapped, func(*args, **kwargs))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act, self.same = nn.ReLU(inplace=True), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        twice = self.a(x) + self.b(x)  # two shares of one gradient
        return self.same(self.act(twice)) + F.softplus(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.last = Block(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.block(x))
        return found


def forward(net: nn.Module, x: Tensor) -> None:
    net(x).square().sum().backward()


def step(net: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    forward(net, x)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    forward(net, x.detach())


def graphless(net: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        net(x)


WORK: dict[str, Callable[[nn.Module, Tensor], None]] = {
    "step": step,
    "forward": forward,
    "graphless": graphless,
}


NOTHING = Nothing()
MODES = {"function mode": [Functions], "dispatch mode": [Dispatched], "both modes": [Functions, Dispatched]}


def seen(kind: str, work: str, debugger: Any = NOTHING, *, around: bool = False) -> Calls:
    """What a mode or a subclass is asked by some work. around: and by start, stop and step."""
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4)
    if kind == "function subclass":
        x = x.as_subclass(Asked)
    elif kind == "parameters of a subclass":
        for module in net.modules():
            for name, p in list(module._parameters.items()):
                module._parameters[name] = nn.Parameter(p.detach().as_subclass(Asked))  # type: ignore[union-attr]
    elif kind == "dispatch subclass":
        x = Wrapped(x)
    x.requires_grad_()
    collected: Any = debugger.one_step(net)
    with ExitStack() as looking, ExitStack() as outside:
        if not around:
            outside.enter_context(collected)
        CALLS.clear()
        for mode in MODES.get(kind, ()):
            looking.enter_context(mode(CALLS))
        with collected if around else nullcontext():
            WORK[work](net, x)
        looking.close()
        return list(CALLS)


class Computing(Functions):
    """It calls torch itself, as modes that count or check do."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(resolve_name(func) or repr(func))
        out = func(*args, **(kwargs or {}))
        return F.relu(out * 2) - out if getattr(func, "__name__", "") == "linear" else out


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_mode_that_computes(level: str, tmp_path: Path) -> None:
    def run(calls: Calls) -> Tensor:
        torch.manual_seed(0)
        net, x = Net(), torch.randn(3, 4)
        with Computing(calls):
            found: Tensor = net(x)
        return found.detach()

    calls: Calls = []
    truth = run(calls)
    with dumped(tmp_path, Net(), level=level):
        watched: Calls = []
        assert torch.equal(run(watched), truth)
    assert watched == calls


KINDS = (
    *("function mode", "dispatch mode", "both modes", "function subclass"),
    *("parameters of a subclass", "dispatch subclass"),
)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("kind", KINDS)
def test_they_see_what_they_see_without_probe(kind: str, level: str, task: str, tmp_path: Path) -> None:
    truth = seen(kind, "step")
    assert len(truth) > 10
    with opened(tmp_path, level=level, task=task) as debugger:
        assert seen(kind, "step", debugger) == truth
    assert len(records(tmp_path / "dump", 0)) > 5
    assert not report(tmp_path / "dump", 0)["faults"]


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("keys", [{"async_dump": True, "zero_count": True}, {"summary_mode": "md5"}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_in_other_settings(kind: str, keys: dict[str, Any], work: str, tmp_path: Path) -> None:
    truth = seen(kind, work)
    with opened(tmp_path, level="mix", task="tensor" if "zero_count" in keys else "statistics", **keys) as d:
        assert seen(kind, work, d) == truth
    assert not report(tmp_path / "dump", 0)["faults"]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("kind", ["function mode", "dispatch mode", "both modes"])
def test_start_stop_and_step_are_not_seen_either(kind: str, level: str, tmp_path: Path) -> None:
    truth = seen(kind, "step")
    with opened(tmp_path, level=level, task="tensor") as debugger:
        assert seen(kind, "step", debugger, around=True) == truth
