"""torch.func: what runs inside its levels is recorded with its numbers, gradients included, and nothing changes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from documents import validate
from dumping import agrees, dumped, leaves, load, opened, rank_dir, records, report
from messages import silent
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)
from torch.utils import _pytree as tree

X = torch.linspace(-1, 1, 15).view(5, 3)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Identity(), nn.Linear(4, 2))


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters()}


def loss_of(model: nn.Module) -> Callable[..., Any]:
    return lambda params, x: functional_call(model, params, (x,)).square().sum()


def back_and_forth(model: nn.Module) -> Any:
    out, pull = vjp(lambda x: model(x), X)
    return out, pull(2 * out)


def in_the_users_own_pass(model: nn.Module) -> Any:
    x = X.clone().requires_grad_()
    vmap(model)(x).square().sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())]


#: What is run; what it has in common with a plain run: the inputs, and whether gradients of square().sum() arrive.
CASES: dict[str, tuple[Callable[[nn.Module], Any], Tensor, bool]] = {
    "functional_call": (lambda m: functional_call(m, parameters(m), (X,)), X, False),
    "grad of parameters": (lambda m: grad(loss_of(m))(parameters(m), X), X, True),
    "grad of the input": (lambda m: grad(lambda x: m(x).square().sum())(X), X, True),
    "a gradient for each sample": (lambda m: vmap(grad(loss_of(m)), (None, 0))(parameters(m), X), X, True),
    "vmap of grad": (lambda m: vmap(grad(lambda x: m(x).square().sum()))(X), X, True),
    "grad of vmap": (lambda m: grad(lambda x: vmap(m)(x).square().sum())(X), X, True),
    "vjp": (back_and_forth, X, True),
    "jvp": (lambda m: jvp(lambda x: m(x), (X,), (torch.ones_like(X),)), X, False),
    "jacrev": (lambda m: jacrev(lambda x: m(x).square().sum())(X), X, False),
    "jacfwd": (lambda m: jacfwd(lambda x: m(x))(X[0]), X[0], False),
    "hessian": (lambda m: hessian(lambda x: m(x).square().sum())(X[0]), X[0], False),
    "vmap": (lambda m: vmap(m)(X), X, False),
    "linearize": (lambda m: linearize(lambda x: m(x), X)[1](torch.ones_like(X)), X, False),
    "functionalize": (lambda m: functionalize(lambda x: m(x))(X), X, False),
    "vmap in a pass of the user's": (in_the_users_own_pass, X, True),
}


def plain(x: Tensor) -> dict[str, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """By plain autograd, of each module: what it was given and gave, and the gradients of both."""
    model, seen = net(), {}
    current = x.clone().requires_grad_()
    for i, module in enumerate(model):
        given = current * 1.0  # a tensor of its own, as Identity gives the one it was given
        given.retain_grad()
        made = module(given) * 1.0
        made.retain_grad()
        seen[f"{i}.{type(module).__name__}"] = (given, made)
        current = made
    current.square().sum().backward()
    return {name: (a, b, a.grad, b.grad) for name, (a, b) in seen.items()}  # type: ignore[misc]


def same(one: Any, other: Any) -> bool:
    pairs = zip(tree.tree_leaves(one), tree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch's own, of linearize
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("case", CASES)
def test_torch_func(case: str, task: str, level: str, tmp_path: Path) -> None:
    run, x, differentiated = CASES[case]
    expected = run(net())
    model = net()
    with silent(), opened(tmp_path, level=level, task=task) as debugger, debugger.one_step(model):
        got = run(model)
    assert same(expected, got)
    data, said = records(tmp_path / "dump"), report(tmp_path / "dump")
    validate(rank_dir(tmp_path / "dump"))
    assert not said["faults"] and not said["counts"]["failed"] and not said["counts"]["unsupported"]
    if task == "tensor":
        for tensor in leaves(data):
            assert tensor["Norm"] is None or agrees(tensor, load(tmp_path / "dump", tensor))
    if level == "L1":
        assert data["Functional.linear.0.forward"]["output"][0]["Norm"] > 0
        return
    for name, (given, made, given_grad, made_grad) in plain(x).items():
        record = data[f"Module.{name}.forward.0"]
        assert agrees(record["input_args"][0], given) and agrees(record["output"][0], made), name
        if differentiated:
            record = data[f"Module.{name}.backward.0"]
            assert agrees(record["input"][0], made_grad), name
            first_of_constants = record["output"][0] is None and name == "0.Linear"  # X needed no gradient
            assert first_of_constants or agrees(record["output"][0], given_grad), name


def test_the_record_says_which_levels_a_tensor_is_in(tmp_path: Path) -> None:
    model = net()
    with dumped(tmp_path, model, level="L0"):
        vmap(grad(lambda x: model(x).sum()), 1)(X.T)
        model(X)
    inside, outside = (
        records(tmp_path / "dump")[f"Module.0.Linear.forward.{i}"]["input_args"][0] for i in (0, 1)
    )
    assert inside["type"] == "GradTrackingTensor" and inside["shape"] == [3, 5]
    assert inside["functorch"] == [
        {"type": "GradTrackingTensor", "level": 2},
        {"type": "BatchedTensor", "level": 1, "dim": 1},
    ]
    assert outside["type"] == "torch.Tensor" and "functorch" not in outside


def has_levels() -> bool:
    """Whether torch has made a table of levels for this thread, which it copies for each node of a graph."""
    torch_cpu = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    table = torch_cpu["_ZN2at9functorch20functorchTLSAccessorEv"]
    table.restype = ctypes.c_void_p
    return bool(ctypes.c_void_p.from_address(table()).value)


def batched_gradient(model: nn.Module) -> Any:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(model(x)[0], x, torch.eye(2), is_grads_batched=True)


def batched_under_autocast(model: nn.Module) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        out = model(X)[0].float()
    return torch.autograd.grad(out, list(model.parameters()), torch.eye(2), is_grads_batched=True)


def of_one_sample(row: int, **keys: Any) -> Callable[[nn.Module], Any]:
    return lambda model: torch.autograd.functional.jacobian(
        lambda x: model(x), X[row], vectorize=True, **keys
    )


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize(
    "run",
    [
        batched_gradient,
        batched_under_autocast,
        of_one_sample(0),
        of_one_sample(0, strategy="forward-mode"),
        lambda m: torch.autograd.functional.hessian(lambda x: m(x).sum(), X[0], vectorize=True),
    ],
)
def test_torchs_older_vmap(run: Callable[[nn.Module], Any], level: str, tmp_path: Path) -> None:
    """What autograd batches by itself has its numbers, with every batch, also where they are sums."""
    model = nn.Sequential(Gated())
    right = run(model)
    with dumped(tmp_path, model, level=level, task="tensor"):
        found = run(model)
    assert all(map(torch.equal, tree.tree_leaves(found), tree.tree_leaves(right)))
    assert not report(tmp_path / "dump")["faults"]
    every = [leaf for record in records(tmp_path / "dump").values() for leaf in leaves(record)]
    assert not [leaf for leaf in every if "lost" in leaf or "unsupported" in leaf]
    assert run is not batched_gradient or any("functorch" in leaf for leaf in every)
    if level != "L1" and run is batched_gradient:
        (sent,) = records(tmp_path / "dump")["Module.0.Gated.backward.0"]["output"]
        assert sent["shape"] == [2, 5, 3]
        assert torch.equal(load(tmp_path / "dump", sent), right[0])


class Gated(nn.Module):
    """One that uses its input twice, and writes into a view."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x)
        y[..., 1:].mul_(2)
        return y * x[..., :2].sin()


def test_a_thread_without_levels_has_none_after_a_dump(tmp_path: Path) -> None:
    """What torch makes for the levels of a thread stays, and makes each of its later steps slower."""
    model = net()

    def has_some_after_a_dump() -> bool:
        before = has_levels()
        with dumped(tmp_path, model, level="mix"):
            model(X).square().sum().backward()
        return before or has_levels()

    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(has_some_after_a_dump).result()
        pool.submit(vmap(model), X).result()
        assert pool.submit(has_levels).result()


@pytest.mark.parametrize("calls_itself", [True, False])
def test_a_step_that_begins_within_functional_call_has_the_parameters_gradients_or_says_so(
    calls_itself: bool, tmp_path: Path
) -> None:
    """As `probe run` begins one: the model's parameters are others' then."""
    model = net()
    lent = {name: 2 * p for name, p in model.named_parameters()}
    with opened(tmp_path, level="L0") as debugger:
        with model.register_forward_pre_hook(lambda *_: debugger.start(model)):
            out = functional_call(model, lent, (X,))
        if calls_itself:
            out = out - model(X)
        out.square().sum().backward()
        debugger.stop()
        debugger.step()
    found = [name for name in records(tmp_path / "dump") if name.endswith("parameters_grad")]
    unseen = [one["what"] for one in report(tmp_path / "dump")["not_seen"]]
    assert len(found) == 2 * calls_itself
    assert unseen == ["gradients of parameters of 2 modules"] * (not calls_itself)
