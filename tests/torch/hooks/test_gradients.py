"""Backward records against the truth: what autograd itself gives for the same call on a copy, to 1e-6."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import zoo
from dumping import agrees, capture, dumped, load, opened, records, report
from launching import FORKS
from probe_runtime.collect import UNTOLD
from probe_torch.aside import aside
from probe_torch.hooks import parameter_gradients
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Json = Any


def shut(gradient: Json, expected: Tensor | None) -> bool:
    """Whether a slot holds `expected`, or null for None."""
    return gradient is None if expected is None else agrees(gradient, expected)


def back(data: dict[str, Json], name: str) -> tuple[list[Json], list[Json]]:
    record = data[name]
    return record["input"], record["output"]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with zoo.fixed(7):
        yield


# ---------------- functions: one slot for each argument, in argument order
def test_linear_has_its_slots_in_argument_order(tmp_path: Path) -> None:
    """msprobe writes bias, input, transposed weight: the order of the node."""
    x, w, b, g = leaf(5, 3), leaf(4, 3), leaf(4), torch.randn(5, 4)
    data = capture(tmp_path, lambda: F.linear(x, w, b).backward(g), level="L1")
    given, made = back(data, "Functional.linear.0.backward")
    assert len(given) == 1 and shut(given[0], g)
    assert len(made) == 3
    assert shut(made[0], g @ w) and shut(made[1], g.T @ x) and shut(made[2], g.sum(0))
    assert made[1]["shape"] == [4, 3]


def test_keywords_come_after_positions_in_the_order_of_the_call(tmp_path: Path) -> None:
    x, w, b = leaf(5, 3), leaf(4, 3), leaf(4)
    data = capture(tmp_path, lambda: F.linear(x, bias=b, weight=w).sum().backward(), level="L1")
    _, made = back(data, "Functional.linear.0.backward")
    assert [slot["shape"] for slot in made] == [[5, 3], [4], [4, 3]]


class _Shares(nn.Module):
    """Its three arguments take the gradients 2, 3 and 5 times that of its output."""

    def forward(self, q: Tensor, k: Any, *, v: Tensor) -> Tensor:
        return q * 2 + k[0] * 3 + v * 5


def test_one_sum_in_several_slots_says_so(tmp_path: Path) -> None:
    """attention(h, h, h): no hook tells the shares, so each slot has the sum and names the others."""
    model = nn.ModuleDict({"attention": _Shares()})
    x, other = leaf(4), leaf(4)

    def work() -> None:
        h = x * 1
        model["attention"](h, [h, 7], v=h).sum().backward(retain_graph=True)
        model["attention"](h, [h], v=other).sum().backward()

    data = capture(tmp_path, work, model, level="L0")
    first, second = (back(data, f"Module.attention._Shares.backward.{n}")[1] for n in (0, 1))
    places = {"output.0": first[0], "output.1.0": first[1][0], "output.2": first[2]}
    for place, tensor in places.items():
        assert shut(tensor, torch.full((4,), 10.0))
        assert tensor["shared_with"] == [p for p in places if p != place]
    assert shut(second[0], torch.full((4,), 5.0)) and shut(second[2], torch.full((4,), 5.0))
    assert second[0]["shared_with"] == ["output.1.0"] and "shared_with" not in second[2]


def test_in_place_functions(tmp_path: Path) -> None:
    x, g = leaf(6), torch.randn(6)

    def work() -> None:
        y = x * 2.0
        y.mul_(-3.0)
        y.relu_()
        y.backward(g)

    data = capture(tmp_path, work, level="L1")
    mask = x.detach() < 0
    given, made = back(data, "Tensor.relu_.0.backward")
    assert shut(given[0], g) and shut(made[0], g * mask)
    given, made = back(data, "Tensor.mul_.0.backward")
    assert shut(given[0], g * mask) and shut(made[0], g * mask * -3)


def test_a_write_into_a_view(tmp_path: Path) -> None:
    x, v = leaf(4, 4), leaf(4)
    g = torch.randn(4, 4)

    def work() -> None:
        y = x * 1.0
        y[1].add_(v)
        y[:, 2] *= 5.0
        y.backward(g)

    data = capture(tmp_path, work, level="L1")
    given, made = back(data, "Tensor.add_.0.backward")
    scale = torch.tensor([1.0, 1.0, 5.0, 1.0])
    assert shut(given[0], g[1] * scale)
    assert shut(made[1], g[1] * scale) and shut(made[0], g[1] * scale)
    assert torch.allclose(x.grad, g * scale)  # type: ignore[arg-type]


def test_a_view_that_torch_follows_no_more(tmp_path: Path) -> None:
    """Torch raises where the node of such a view is asked for; the call that is given one has its record."""
    net = nn.ModuleDict({"own": Returns(lambda w, view: w * 2)})
    x = leaf(2, 3)

    def work() -> None:
        y = x * 1.0
        _, second = y.unbind(0)
        y.mul_(2.0)
        with pytest.raises(RuntimeError, match="modified inplace"):
            _ = second.grad_fn
        net["own"](second).sum().backward()

    data = capture(tmp_path, work, net, level="L0")
    assert agrees(data["Module.own.Returns.forward.0"]["input_args"][0], x[1] * 2)
    given, made = back(data, "Module.own.Returns.backward.0")
    assert shut(given[0], torch.ones(3)) and made == [None]
    assert report(tmp_path / "dump")["faults"] == []


def test_no_grad_and_integers_make_no_record(tmp_path: Path) -> None:
    x = leaf(3)

    def work() -> None:
        with torch.no_grad():
            F.gelu(x)
        torch.argmax(x)
        F.silu(x.detach())
        F.relu(x).sum().backward()

    data = capture(tmp_path, work, level="L1")
    assert [n for n in data if n.endswith("backward")] == [
        "Tensor.sum.0.backward",
        "Functional.relu.0.backward",
    ]


# ---------------- several passes, accumulation
def test_several_backward_passes_are_kept_apart(tmp_path: Path) -> None:
    x, w = leaf(2, 3), leaf(4, 3)
    g = [torch.randn(2, 4) for _ in range(3)]

    def work() -> None:
        y = F.linear(x, w)
        y.backward(g[0], retain_graph=True)
        y.backward(g[1], retain_graph=True)
        torch.autograd.grad(y, x, g[2])

    record = capture(tmp_path, work, level="L1")["Functional.linear.0.backward"]
    first, second, third = record, *record["later_passes"]
    for one, grad in zip((first, second), g, strict=False):
        assert shut(one["input"][0], grad)
        assert shut(one["output"][0], grad @ w) and shut(one["output"][1], grad.T @ x)
    assert shut(third["input"][0], g[2]) and shut(third["output"][0], g[2] @ w)


def test_parameter_gradients_one_for_each_arrival(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    batches = [torch.randn(4, 3) for _ in range(3)]

    def work() -> None:
        for batch in batches:
            net(batch).sum().backward()

    data = capture(tmp_path, work, net, level="L0")
    names = ["Module.0.Linear.parameters_grad", *(f"Module.0.Linear.parameters_grad.{i}" for i in (1, 2))]
    assert names == [name for name in data if "parameters_grad" in name]
    assert all(set(data[name]) == {"weight", "bias"} for name in names)
    arrived = {key: [slot for name in names for slot in data[name][key]] for key in ("weight", "bias")}
    alone = [torch.ones(4, 2).T @ batch for batch in batches]
    sums = [sum(alone[: i + 1], torch.zeros(2, 3)) for i in range(3)]
    assert len(arrived["weight"]) == 3
    fits = [
        all(agrees(slot, truth) for slot, truth in zip(arrived["weight"], expected, strict=True))
        for expected in (alone, sums)
    ]
    assert fits == [False, True], "param.grad as it is after each arrival, as msprobe has it"
    for i in range(3):
        _, made = back(data, f"Module.0.Linear.backward.{i}")
        assert made == [None], "the batch needs no gradient"


def test_tied_weights_are_filed_under_each_owner(tmp_path: Path) -> None:
    net = nn.ModuleDict({"a": nn.Embedding(5, 3), "b": nn.Linear(3, 5, bias=False)})
    net["b"].weight = net["a"].weight  # type: ignore[assignment]
    data = capture(
        tmp_path, lambda: net["b"](net["a"](torch.tensor([1, 2]))).sum().backward(), net, level="L0"
    )
    truth = net["a"].weight.grad
    assert isinstance(truth, Tensor)
    for owner in ("a.Embedding", "b.Linear"):
        assert agrees(data[f"Module.{owner}.parameters_grad"]["weight"][-1], truth)


# ---------------- modules
def test_a_module_that_returns_its_input(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Identity(), nn.Linear(3, 3), nn.Identity())
    x, g = leaf(2, 3), torch.randn(2, 3)
    data = capture(tmp_path, lambda: net(x).backward(g), net, level="L0")
    given, made = back(data, "Module.2.Identity.backward.0")
    assert shut(given[0], g) and shut(made[0], g)
    given, made = back(data, "Module.1.Linear.backward.0")
    assert shut(given[0], g) and shut(made[0], g @ net[1].weight.detach())


class Returns(nn.Module):
    """A module that passes on what `choose` takes of its parameter and its arguments."""

    def __init__(self, choose: Callable[..., Any]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))
        self.choose = choose

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.choose(self.w, *args, **kwargs)


def test_a_leaf_that_is_only_passed_on(tmp_path: Path) -> None:
    """Through modules and functions, alone, in containers and twice; what else is done with it counts as well."""
    net = nn.ModuleDict(
        {
            "identity": nn.Identity(),
            "own": Returns(lambda w: w),
            "pair": Returns(lambda w, a, b: (a, {"b": b, "more": a * 2})),
            "twice": Returns(lambda w, a: (a, a)),
            "fresh": Returns(lambda w, a: a.detach().requires_grad_()),
        }
    )
    x, y, w = leaf(2, 3), leaf(2, 3), leaf(3)
    made: list[Tensor] = []

    def work() -> None:
        a, own = net["identity"](x), net["own"]()
        assert a is x and own is net["own"].w
        first, rest = net["pair"](a, b=y)
        one, two = net["twice"](y)
        made.append(net["fresh"](one))
        used = first * own + rest["b"] * 3 + rest["more"] + two * made[0] + w.flatten(0)
        used.square().sum().backward()

    data = capture(tmp_path, work, net)
    xg, yg, own = x.grad, y.grad, net["own"].w.grad
    assert xg is not None and yg is not None and isinstance(own, Tensor)
    assert [shut(s, xg) for side in back(data, "Module.identity.Identity.backward.0") for s in side] == [
        True,
        True,
    ]
    given, got = back(data, "Module.own.Returns.backward.0")
    assert shut(given[0], own) and got == []
    given, got = back(data, "Module.pair.Returns.backward.0")
    assert untold(given[0]) and untold(given[1]["b"]) and untold(got[1])
    assert shut(got[0], 2 * load_free(given[1]["more"], x, y, net, w))
    assert data["Module.pair.Returns.backward.0"]["partial"] is True
    given, got = back(data, "Module.twice.Returns.backward.0")
    assert untold(given[0]) and untold(given[1]) and shut(got[0], yg)
    given, got = back(data, "Module.fresh.Returns.backward.0")
    assert shut(given[0], made[0].grad) and got == [None]
    given, got = back(data, "Tensor.flatten.0.backward")
    assert shut(given[0], w.grad) and shut(got[0], w.grad)


def untold(slot: Json) -> bool:
    """Whether a gradient has no number, and says why."""
    return slot["Norm"] is None and slot["unsupported"] == UNTOLD


def in_a_thread(work: Callable[[], Tensor]) -> Tensor:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize(
    "call",
    [
        lambda w, x: x * 0.5 + in_a_thread(lambda: torch.tanh(x * w)),
        lambda w, x: in_a_thread(lambda: torch.tanh(x * w)).clone(),
        lambda w, x: in_a_thread(lambda: torch.tanh(x * w)),
        lambda w, x: in_a_thread(lambda: torch.tanh((y := x * w)[0].mul_(3)) + y) * x,
    ],
    ids=["beside", "within", "returned", "written"],
)
def test_a_part_of_the_graph_that_another_thread_made_costs_the_number(
    call: Callable[..., Tensor], level: str, tmp_path: Path
) -> None:
    """Autograd numbers the nodes of each thread by themselves, so what is older than the call is not known."""
    net, x, g = nn.ModuleDict({"call": Returns(call)}), leaf(2, 3), torch.randn(2, 3)
    data = capture(tmp_path, lambda: net["call"](x * 2 * 3).backward(g), net, level=level)
    given, made = back(data, "Module.call.Returns.backward.0")
    assert shut(given[0], g) and untold(made[0])


@pytest.mark.parametrize("also", [1, 2], ids=["alone", "several"])
@pytest.mark.parametrize("threaded", [False, True], ids=["same thread", "another"])
def test_what_was_made_of_an_input_before_the_call_is_none_of_its_share(
    threaded: bool, also: int, tmp_path: Path
) -> None:
    """A call in another thread meets nodes of higher numbers than its own: whether they are its own is not known."""
    held: list[Tensor] = []
    net, g = nn.ModuleDict({"gate": Returns(lambda w, x: x * held[0] * also)}), torch.randn(2, 3)

    def work() -> None:
        x = leaf(2, 3) * 2
        held.append(torch.tanh(x * 3))
        (in_a_thread(lambda: net["gate"](x)) if threaded else net["gate"](x)).backward(g)

    data = capture(tmp_path, work, net, level="L0")
    given, made = back(data, "Module.gate.Returns.backward.0")
    assert shut(given[0], g)
    assert untold(made[0]) if threaded else shut(made[0], g * held[0].detach() * also)


def test_a_view_that_another_thread_writes_in_place_has_its_gradients(tmp_path: Path) -> None:
    net, g = nn.ModuleDict({"call": Returns(lambda w, v: in_a_thread(lambda: v.mul_(3)))}), torch.randn(2, 3)

    def work() -> None:
        base = leaf(2, 3) * 1
        net["call"](base[0])
        base.backward(g)

    data = capture(tmp_path, work, net, level="L0")
    given, made = back(data, "Module.call.Returns.backward.0")
    assert shut(given[0], g[0]) and shut(made[0], 3 * g[0])


def test_a_share_that_never_comes_gives_no_number_to_one_that_is_unknown(tmp_path: Path) -> None:
    """What a step's end has of a sum is as unknown as the sum."""
    call = Returns(lambda w, x: (x * 0.5 + in_a_thread(lambda: torch.tanh(x)), x * 2))
    net, x = nn.ModuleDict({"call": call}), leaf(2, 3)
    data = capture(tmp_path, lambda: net["call"](x * 2)[0].sum().backward(), net, level="L0")
    record = data["Module.call.Returns.backward.0"]
    assert untold(record["output"][0]) and record["partial"] is True


def load_free(slot: Json, x: Tensor, y: Tensor, net: nn.ModuleDict, w: Tensor) -> Tensor:
    """The gradient of `x * 2` in the test above, after checking that the slot has it."""
    own: Any = net["own"].w
    with torch.no_grad():
        grad = 2 * (x * own + y * 3 + x * 2 + y * y + w)
    assert shut(slot, grad)
    return grad


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_is_passed_on_and_is_no_leaf_is_counted_once(level: str, tmp_path: Path) -> None:
    net = nn.ModuleDict({"twice": Returns(lambda w, a: (a, [a, a]))})
    x = leaf(2, 3)

    def work() -> None:
        a, (b, c) = net["twice"](x * 1.0)
        (a + b * 2 + c * 3).sum().backward()

    data = capture(tmp_path, work, net, level=level)
    assert torch.equal(x.grad, torch.full((2, 3), 6.0))  # type: ignore[arg-type]
    if level != "L1":
        given, got = back(data, "Module.twice.Returns.backward.0")
        assert untold(given[0]) and all(map(untold, given[1])) and shut(got[0], x.grad)


def test_a_leaf_passed_on_in_each_of_several_passes(tmp_path: Path) -> None:
    """Each micro-batch's call has the gradient of its own pass; a graph that is kept has later passes."""
    net = nn.ModuleDict({"own": Returns(lambda w: w)})
    batches = [torch.randn(3) for _ in range(2)]

    def work() -> None:
        for batch in batches:
            (net["own"]() * batch).sum().backward()
        kept = (net["own"]() * 5.0).sum()
        kept.backward(retain_graph=True)
        kept.backward()
        torch.autograd.grad((net["own"]() * 7.0).sum(), net["own"].w)

    data = capture(tmp_path, work, net, level="L0")
    for i, batch in enumerate(batches):
        record = data[f"Module.own.Returns.backward.{i}"]
        assert shut(record["input"][0], batch) and "later_passes" not in record
    record = data["Module.own.Returns.backward.2"]
    five = torch.full((3,), 5.0)
    assert shut(record["input"][0], five) and [shut(p["input"][0], five) for p in record["later_passes"]] == [
        True
    ]
    assert shut(data["Module.own.Returns.backward.3"]["input"][0], torch.full((3,), 7.0))


def test_parametrized_weights(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for layer, kind in ((net[0], nn.Identity()), (net[1], nn.Tanh())):
        torch.nn.utils.parametrize.register_parametrization(layer, "weight", kind)
    data = capture(tmp_path, lambda: net(torch.randn(2, 3)).square().sum().backward(), net, level="L0")
    for i, kind in enumerate(("Identity", "Tanh")):
        original = net[i].parametrizations.weight.original.grad
        inner, whole = (
            f"Module.{i}.parametrizations.weight.0.{kind}",
            f"Module.{i}.parametrizations.weight.Parametri",
        )
        given, got = back(data, f"{inner}.backward.0")
        assert shut(got[0], original) and (kind == "Tanh" or shut(given[0], original))
        given_whole, got = back(data, f"{whole}zationList.backward.0")
        assert given_whole == given and got == []


def test_a_leaf_with_our_hook_is_saved_and_copied_without_a_word(tmp_path: Path) -> None:
    x = leaf(3)
    plain = pickle.dumps(x)
    with opened(tmp_path, level="L0") as debugger, warnings.catch_warnings():
        warnings.simplefilter("error")
        net = nn.Sequential(nn.Identity())
        with debugger.one_step(net):
            y = net(x)
            torch.save(y, tmp_path / "x.pt")
            assert pickle.dumps(y) == plain and torch.equal(copy.deepcopy(y), x)
            (y * 2).sum().backward()
    assert not x._backward_hooks


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_no_name_and_no_number(reentrant: bool, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self, rerun: bool) -> None:
            super().__init__()
            self.a, self.b, self.c = (
                nn.Linear(3, 3),
                nn.Sequential(nn.Linear(3, 3), nn.GELU()),
                nn.Linear(3, 3),
            )
            self.rerun = rerun

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            x = checkpoint(self.b, x, use_reentrant=reentrant) if self.rerun else self.b(x)
            return self.c(x)

    net = Net(False)
    x = leaf(2, 3)
    plain = capture(tmp_path / "plain", lambda: net(x).square().sum().backward(), net)
    net.zero_grad()
    net.rerun = True
    rerun = capture(tmp_path / "rerun", lambda: net(x).square().sum().backward(), net)
    assert rerun.keys() == plain.keys()
    for name, record in plain.items():
        again = rerun[name]
        for key in ("input", "output", "input_args"):
            for one, other in zip(record.get(key, []), again.get(key, []), strict=True):
                if isinstance(one, dict) and "Norm" in one:
                    assert other["Norm"] == pytest.approx(one["Norm"], rel=1e-6), (name, key)
    marked = {name for name, record in rerun.items() if "recompute" in record}
    assert {"Module.b.0.Linear.forward.0", "Module.b.1.GELU.forward.0"} <= marked
    assert not {"Module.a.Linear.forward.0", "Module.c.Linear.forward.0"} & marked
    assert not [name for name, record in plain.items() if "recompute" in record]
    recomputed = rerun["Module.b.0.Linear.forward.0"]["recompute"]
    assert (
        recomputed["input_args"][0]["Norm"] == plain["Module.b.0.Linear.forward.0"]["input_args"][0]["Norm"]
    )


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("how", ["step in backward", "offload"])
def test_a_gradient_that_a_hook_of_the_run_consumes_is_recorded(tmp_path: Path, level: str, how: str) -> None:
    """As in the tutorial "how to save memory by fusing the optimizer step into the backward pass"."""
    taken: dict[str, Tensor] = {}

    def trained(folder: Path | None) -> tuple[nn.Module, dict[str, Json]]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}
        names = {p: name for name, p in net.named_parameters()}

        def consume(p: Tensor) -> None:
            assert p.grad is not None
            taken[names[p]] = p.grad.clone()
            if how == "step in backward":
                optimizers[p].step()
                optimizers[p].zero_grad()
            p.grad = None

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(consume)
        x = torch.randn(5, 3)
        data = {}
        if folder is None:
            net(x).square().sum().backward()
        else:
            data = capture(folder, lambda: net(x).square().sum().backward(), net, level=level, task="tensor")
        return net, data

    plain, _ = trained(None)
    watched, data = trained(tmp_path)
    assert all(map(torch.equal, plain.parameters(), watched.parameters()))
    for name, grad in taken.items():
        layer, kind = name.split(".")
        (found,) = data[f"Module.{layer}.Linear.parameters_grad"][kind]
        assert torch.equal(load(tmp_path / "dump", found), grad)


def test_a_gradient_that_is_gone_before_anybody_is_called_is_named(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4))
    with dumped(tmp_path, net, level="L0"):
        weight = net[0].weight
        hooks = weight._post_accumulate_grad_hooks
        assert hooks is not None
        (ours,) = hooks
        hooks[1 << 62] = lambda p: setattr(p, "grad", None)
        hooks[ours] = hooks.pop(ours)
        net(torch.ones(2, 3)).sum().backward()
        del hooks[1 << 62]
    (said,) = [each for each in report(tmp_path / "dump")["not_seen"] if "gradient" in each["what"]]
    assert (
        said["what"] == "Module.0.Linear.parameters_grad: gradient of weight"
        and "hook of the run" in said["why"]
    )


def test_a_step_begins_while_another_thread_is_about_to_call_hooks(tmp_path: Path) -> None:
    """torch would go on with what it has freed, and end the process."""
    FORKS.run(str(Path(__file__).with_name("overtaken.py")), str(tmp_path / "dump"))
    for step in range(3):
        assert len(records(tmp_path / "dump", step)["Module.0.Linear.parameters_grad"]) == 2


def test_a_step_ends_in_another_thread_as_a_gradient_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    net = nn.Sequential(nn.Linear(3, 4))
    with opened(tmp_path, level="L0") as debugger:
        debugger.start(net)
        loss = net(torch.ones(2, 3)).sum()

        def later() -> Any:
            monkeypatch.undo()
            threads: list[threading.Thread] = []
            for call in (debugger.stop, debugger.step):
                threads.append(threading.Thread(target=call))
                threads[-1].start()
                threads[-1].join()
            return aside()

        monkeypatch.setattr(parameter_gradients, "aside", later)
        loss.backward()
    assert not caplog.records


@pytest.mark.parametrize("asked", [True, False])
def test_what_an_optimizer_gets(asked: bool, tmp_path: Path) -> None:
    """After accumulation and clipping, for each step of each optimizer while started; nothing unless asked for."""
    x, copied = torch.ones(1, 2), nn.Parameter(torch.ones(2))
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first = torch.optim.SGD(model[0].parameters(), 0.1)
    second = torch.optim.LBFGS([*model[1].parameters(), copied], max_iter=1)
    got: list[Tensor] = []
    with opened(tmp_path, level="mix", task="tensor", optimizer_grad=asked) as debugger:
        debugger.start(model)
        for _ in range(2):
            model(x).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            first.step()
            got.append(model[0].weight.grad.clone())
        second.step(lambda: model(x).sum())
        debugger.stop()
        first.step()
        debugger.step()
    data = {name: row for name, row in records(tmp_path / "dump").items() if "optimizer_grad" in name}
    layer, other = "Module.0.Linear.optimizer_grad", "Module.1.Linear.optimizer_grad"
    assert data.keys() == ({layer, f"{layer}.1", other} if asked else set())
    if asked:
        for name, truth in zip((layer, f"{layer}.1"), got, strict=True):
            assert torch.equal(load(tmp_path / "dump", data[name]["weight"][0]), truth)
        assert data[other].keys() == {"weight", "bias"}
    left_out = report(tmp_path / "dump")["counts"]["left_out"]
    assert left_out.get("gradients of an optimizer's own copies of parameters", 0) == asked


@pytest.mark.parametrize("raises", [False, True])
def test_what_an_optimizer_gets_is_what_its_own_hooks_have_left(raises: bool, tmp_path: Path) -> None:
    """torch calls the hooks on all optimizers first, so that one on this optimizer would clip after we have looked."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    got: list[Tensor] = []

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        assert model[0].weight.grad is not None
        got.append(model[0].weight.grad.clone())
        if raises and len(got) == 1:
            raise ZeroDivisionError

    with dumped(tmp_path, model, level="L0", task="tensor", optimizer_grad=True):
        for turn in range(3):
            if turn == 1:
                optimizer.register_step_pre_hook(clip)
            model(torch.ones(1, 2)).sum().backward()
            with contextlib.suppress(ZeroDivisionError):
                optimizer.step()
        own = list(optimizer._optimizer_step_pre_hooks.values())
    assert own == list(optimizer._optimizer_step_pre_hooks.values()) == [clip]
    layer = "Module.0.Linear.optimizer_grad"
    data = {name: row for name, row in records(tmp_path / "dump").items() if "optimizer_grad" in name}
    names = [name for name in data if name.startswith(layer)]
    assert names == [layer, f"{layer}.1", f"{layer}.2"][: 2 if raises else 3]
    assert torch.equal(load(tmp_path / "dump", data[names[-1]]["weight"][0]), got[-1])


def test_what_a_compiled_optimizer_gets(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    optimizer.register_step_pre_hook(clip)
    step = torch.compile(optimizer.step, backend="eager")
    for number in range(3):
        with dumped(tmp_path / str(number), model, level="L0", optimizer_grad=True):
            model(torch.ones(1, 2)).sum().backward()
            step()
        found = records(tmp_path / str(number) / "dump")["Module.0.Linear.optimizer_grad"]
        norms = [row["Norm"] for (row,) in found.values()]
        assert sum(norm**2 for norm in norms) ** 0.5 == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("cleared", ["before the step", "after the step"])
def test_gradients_that_the_run_sets_itself_are_recorded(tmp_path: Path, cleared: str) -> None:
    """As FSDP does: no hook is called. They are cleared after the step, or the last step's are freed for them."""
    net = nn.Sequential(nn.Linear(4, 4, bias=False))
    (weight,) = net.parameters()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    truth: list[Tensor] = []
    with opened(tmp_path, level="L0", task="tensor") as debugger:
        for _ in range(12):
            with debugger.one_step(net):
                if cleared == "before the step":
                    optimizer.zero_grad()
                (weight.grad,) = torch.autograd.grad(net(torch.randn(2, 4)).square().sum(), [weight])
                truth.append(weight.grad.clone())
                optimizer.step()
                if cleared == "after the step":
                    optimizer.zero_grad()
    for step, grad in enumerate(truth):
        (found,) = records(tmp_path / "dump", step)["Module.0.Linear.parameters_grad"]["weight"]
        assert found["found_late"] is True
        assert torch.equal(load(tmp_path / "dump", found, step), grad), step


def test_the_next_gradient_is_another_one_wherever_it_lies(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4, bias=False))
    (weight,) = net.parameters()
    with opened(tmp_path, level="L0") as debugger:
        for step in range(40):
            with debugger.one_step(net):
                weight.grad = None
                weight.grad = torch.full((4, 4), float(step))
    for step in range(40):
        (found,) = records(tmp_path / "dump", step)["Module.0.Linear.parameters_grad"]["weight"]
        assert found["Max"] == step
