"""Regions: the optimizer and gradient clipping are their own nodes, printing and loading data are left out."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
from probe_torch.patching.regions import step_regions
from scopes import Scopes
from tapping import Recorder
from torch import nn
from torch.autograd.profiler import record_function
from torch.nn.utils import clip_grad_norm_ as early_clip_grad_norm_
from torch.optim.lr_scheduler import StepLR
from torch.optim.optimizer import Optimizer, _global_optimizer_pre_hooks
from torch.utils.data import DataLoader, TensorDataset

OPTIMIZERS = sorted(
    (c for c in vars(torch.optim).values() if isinstance(c, type) and issubclass(c, Optimizer)),
    key=lambda c: c.__name__,
)


class Nodes:
    """Pushes and pops as they come, and the calls between them filed under the innermost node."""

    def __init__(self, tap: Recorder) -> None:
        self.tap = tap
        self.events: list[str] = []
        self.open: list[str] = []
        self.calls: dict[str, list[str]] = {}

    def file(self) -> None:
        self.calls.setdefault(self.open[-1] if self.open else "model", []).extend(self.tap.take())

    def push(self, node: str) -> None:
        self.file()
        self.events.append(f"+{node}")
        self.open.append(node)

    def pop(self, node: str) -> None:
        self.file()
        self.events.append(f"-{node}")
        assert self.open.pop() == node

    def under(self, node: str) -> list[str]:
        self.file()
        return self.calls.get(node, [])


@pytest.fixture
def nodes() -> Nodes:
    return Nodes(Recorder())


@pytest.fixture
def patches(nodes: Nodes) -> Patches:
    return Patches(load_apis(views=True), nodes.tap)


@pytest.fixture
def scopes(patches: Patches, nodes: Nodes) -> Iterator[Scopes]:
    owners = [
        torch.nn.utils,
        torch.nn.utils.clip_grad,
        torch.amp.GradScaler,
        record_function,
        torch._tensor_str,
    ]
    owners += [
        DataLoader,
        torch.utils.data.dataloader._BaseDataLoaderIter,
        dist,
        dist.distributed_c10d,
        Optimizer,
    ]
    before = [dict(vars(owner)) for owner in owners]
    hooks = dict(_global_optimizer_pre_hooks)
    made = Scopes(step_regions, nodes.push, nodes.pop)
    with patches, made:
        yield made
    for owner, names in zip(owners, before, strict=True):
        moved = [name for name, value in names.items() if vars(owner)[name] is not value]
        assert moved == []
        new = vars(owner).keys() - names.keys()
        assert all(isinstance(vars(owner)[name], ModuleType) for name in new)  # what torch imported meanwhile
    assert hooks == dict(_global_optimizer_pre_hooks)
    assert nodes.open == []


def optimizer_of(kind: Any, model: nn.Module) -> Any:
    if kind.__name__ == "Muon":
        return kind([p for p in model.parameters() if p.ndim == 2])
    if kind.__name__ == "SparseAdam":
        return kind(list(model.parameters()))
    return kind(model.parameters(), lr=0.01)


def train(kind: Any, model: nn.Module, steps: int = 2) -> list[torch.Tensor]:
    optimizer = optimizer_of(kind, model)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.sigmoid(model(x)).sum()
        loss.backward()
        if kind.__name__ == "SparseAdam":
            for p in model.parameters():
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(steps):
        if kind.__name__ == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "kind", [o for o in OPTIMIZERS if o is not Optimizer], ids=lambda kind: kind.__name__
)
def test_every_optimizer(kind: Any, scopes: Scopes, patches: Patches, nodes: Nodes) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    twin = copy.deepcopy(model)
    nodes.tap.take()
    got = train(kind, model)
    with patches.suspended():
        wanted = train(kind, twin)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert len(nodes.under("optimizer")) > 2
    assert "Torch.sigmoid" not in nodes.under("optimizer")
    assert nodes.under("model").count("Torch.sigmoid") == nodes.under("model").count("Functional.linear") >= 2
    assert nodes.events[0] == "+optimizer"


def test_a_closure_is_the_model(scopes: Scopes, nodes: Nodes) -> None:
    train(torch.optim.LBFGS, nn.Linear(4, 2), steps=1)
    assert nodes.events[:6] == [
        "+optimizer",
        "-optimizer",
        "+optimizer",
        "-optimizer",
        "+optimizer",
        "-optimizer",
    ]
    assert "Tensor.sum" in nodes.under("model")


@pytest.mark.parametrize("way", ["positional", "keyword"])
def test_a_closure_that_raises(way: str, scopes: Scopes, nodes: Nodes) -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)

    def closure() -> float:
        nodes.tap.take()
        torch.tanh(torch.ones(1))
        raise ValueError("from the closure")

    with pytest.raises(ValueError, match="from the closure"):
        optimizer.step(closure) if way == "positional" else optimizer.step(closure=closure)
    assert nodes.events == ["+optimizer", "-optimizer", "+optimizer", "-optimizer"]
    assert "Torch.tanh" in nodes.under("model")


def test_schedulers(scopes: Scopes, patches: Patches, nodes: Nodes) -> None:
    """A scheduler keeps the optimizer's step from before; the optimizer was made before start, too."""
    model = nn.Linear(2, 2)
    with patches.suspended():
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = StepLR(optimizer, 1)
    steps = vars(optimizer)["step"], type(optimizer).step
    model(torch.ones(1, 2)).sum().backward()
    nodes.file()
    optimizer.step()
    scheduler.step()
    assert nodes.events == ["+optimizer", "-optimizer"]
    assert "Tensor.addcmul_" in nodes.under("optimizer")
    assert steps == (vars(optimizer)["step"], type(optimizer).step)


def test_an_optimizer_that_raises(scopes: Scopes, nodes: Nodes) -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            torch.tanh(torch.ones(1))
            raise RuntimeError("from step")

    optimizer = Broken(nn.Linear(2, 2).parameters(), lr=0.1)
    nodes.tap.take()
    with pytest.raises(RuntimeError, match="from step"):
        optimizer.step()
    assert nodes.events == ["+optimizer", "-optimizer"]
    assert "Torch.tanh" in nodes.under("optimizer")


def test_a_step_inside_a_step_is_one_node(scopes: Scopes, nodes: Nodes) -> None:
    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            early_clip_grad_norm_(self.param_groups[0]["params"], 1.0)
            return super().step(closure)

    model = nn.Linear(2, 2)
    optimizer = Outer(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert nodes.events == ["+optimizer", "+clip_grad", "-clip_grad", "-optimizer"]


def test_users_hooks_and_closures_are_kept(scopes: Scopes) -> None:
    seen: list[Any] = []
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: seen.append(len(args)))
    optimizer.register_step_post_hook(lambda opt, args, kwargs: seen.append(opt))
    assert optimizer.step(lambda: 7.0) == 7.0
    assert optimizer.step() is None
    assert seen == [2, optimizer, 1, optimizer]


@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_", "early", "submodule"])
def test_clipping(name: str, scopes: Scopes, nodes: Nodes) -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    nodes.file()
    clip: Callable[..., Any] = {
        "early": lambda p, v: early_clip_grad_norm_(p, v),
        "submodule": torch.nn.utils.clip_grad.clip_grad_norm_,
    }.get(name) or getattr(torch.nn.utils, name)
    result = clip(model.parameters(), 0.5)
    assert nodes.events == ["+clip_grad", "-clip_grad"]
    assert result is None or isinstance(result, torch.Tensor)
    assert nodes.under("clip_grad") and not nodes.tap.calls


def test_clipping_that_raises(scopes: Scopes, nodes: Nodes) -> None:
    p = nn.Parameter(torch.ones(1))
    p.grad = torch.tensor([float("nan")])
    with pytest.raises(RuntimeError, match="non-finite"):
        torch.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert nodes.events == ["+clip_grad", "-clip_grad"]


def test_scaled_gradients(scopes: Scopes, nodes: Nodes) -> None:
    scaler = torch.amp.GradScaler("cpu")
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    nodes.file()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert nodes.events == ["+optimizer", "-optimizer"] * 3
    assert {"Torch._amp_foreach_non_finite_check_and_unscale_", "Torch._amp_update_scale_"} <= set(
        nodes.under("optimizer")
    )


def test_other_profiled_regions_are_no_nodes(scopes: Scopes, nodes: Nodes) -> None:
    with record_function("mine"):
        torch.tanh(torch.ones(1))
    assert nodes.events == []
    assert "Torch.tanh" in nodes.under("model")


def test_printing(scopes: Scopes, nodes: Nodes, patches: Patches) -> None:
    x = torch.linspace(-1, 1, 2000).reshape(50, 40)
    p = nn.Parameter(torch.ones(2))
    nodes.tap.take()
    got = [repr(x), str(x), f"{x}", repr(p), f"{x[0, 0]:.2f}"]
    calls = [name for name in nodes.tap.take() if name != "Tensor.__getitem__"]
    with patches.suspended():
        assert got == [repr(x), str(x), f"{x}", repr(p), f"{x[0, 0]:.2f}"]
    assert calls == []
    assert scopes.left_out["printing"] >= 4


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_data(workers: int, scopes: Scopes, nodes: Nodes) -> None:
    data = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, shuffle=True, num_workers=workers)
    nodes.tap.take()
    seen = []
    for (batch,) in data:
        assert nodes.tap.take() == []
        seen += batch.tolist()
        F.relu(batch)
        assert nodes.tap.take() == ["Functional.relu"]
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]
    assert scopes.left_out["loading data"] >= 4


def test_collectives_on_objects(one_process: None, scopes: Scopes, nodes: Nodes) -> None:
    nodes.tap.take()
    got: list[Any] = [None]
    dist.all_gather_object(got, {"a": 1})
    dist.broadcast_object_list(got, 0)
    dist.barrier()
    assert got == [{"a": 1}]
    assert nodes.tap.take() == []
    assert scopes.left_out["collectives on objects"] == 3


def test_threads_have_their_own_nodes(patches: Patches) -> None:
    events: dict[int, list[str]] = {}
    barrier = threading.Barrier(2, timeout=30)

    def note(event: str) -> Callable[[str], None]:
        return lambda node: events.setdefault(threading.get_ident(), []).append(event)

    def work(_: int) -> None:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure() -> float:
            barrier.wait()
            return 0.0

        for _ in range(20):
            optimizer.step(closure)

    with patches, Scopes(step_regions, note("+"), note("-")), ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert list(events.values()) == [["+", "-"] * 40] * 2


def test_started_and_stopped_inside_a_step(patches: Patches, nodes: Nodes) -> None:
    scopes = Scopes(step_regions, nodes.push, nodes.pop)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with patches:
        optimizer.step(lambda: scopes.__enter__() and 0.0)
        assert nodes.events == []
        optimizer.step()
        assert nodes.events == ["+optimizer", "-optimizer"]
        optimizer.step(lambda: scopes.__exit__(None, None, None) or 0.0)
        assert nodes.events == ["+optimizer", "-optimizer"] * 2
        with scopes:
            optimizer.register_step_post_hook(lambda *_: scopes.__exit__(None, None, None))
            optimizer.step()
        optimizer.zero_grad()
    assert nodes.events == ["+optimizer", "-optimizer"] * 3


def test_a_second_start(patches: Patches, nodes: Nodes) -> None:
    scopes = Scopes(step_regions, nodes.push, nodes.pop)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    for _ in range(2):
        with scopes, patches:
            optimizer.zero_grad()
            optimizer.step()
    assert nodes.events == ["+optimizer", "-optimizer"] * 4


def test_a_compiled_step(scopes: Scopes, nodes: Nodes) -> None:
    model, twin = nn.Linear(2, 2), nn.Linear(2, 2)
    twin.load_state_dict(model.state_dict())
    for net, compiled in ((model, True), (twin, False)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(1, 2)).sum().backward()
        (torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step)()
    assert torch.equal(model.weight, twin.weight)
