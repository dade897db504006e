"""Tensors of torch and their gradients: exact, and nothing in the run changes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import probe_save as ps
import pytest
from attrs import evolve
from probe_runtime.describe import LARGE
from saving import data, document, load

torch = pytest.importorskip("torch")
nn = torch.nn

from probe_torch import saving as torch_saving  # noqa: E402


@pytest.fixture(params=["tensor", "statistics"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ps.Saver]:
    with ps.Saver(dump_path=tmp_path, task=request.param, summary_mode="md5") as found:
        yield found


@pytest.fixture
def full(tmp_path: Path) -> Iterator[ps.Saver]:
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode="md5") as found:
        yield found


def saved(dump: Path, record: str, at: str | None = None, step: int = 0) -> Any:
    return torch.from_numpy(load(dump, record, at, step))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, look: Callable[[Any, str], Any]) -> Any:
        q, k, v = look(self.qkv(self.norm1(x)), "qkv").chunk(3, -1)
        look({"q": q, "kv": [k, v]}, "heads")
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = look(x + self.drop(self.out(look(h, "attn"))), "mid")
        return look(
            x + self.down(nn.functional.gelu(look(self.up(self.norm2(x)), "up"), approximate="tanh")), "block"
        )


class Gpt(nn.Module):
    def __init__(self, width: int = 32, vocabulary: int = 61, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Any, look: Callable[[Any, str], Any]) -> Any:
        x = look(self.embed(look(ids, "ids")), "embed")
        for block in self.blocks:
            x = block(x, look)
        return look(self.head(x), "logits")


def train(look: Callable[[Any, str], Any], end: Callable[[], None]) -> list[Any]:
    """Three steps of training; every number of them."""
    torch.manual_seed(3)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    numbers: list[Any] = []
    for _ in range(3):
        ids = torch.randint(0, 61, (4, 17))
        logits = model(ids[:, :-1], look)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        look(model.head.weight, "head.weight")
        look(loss, "loss")
        optimizer.zero_grad()
        loss.backward()
        numbers += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters())]
        optimizer.step()
        end()
    return [*numbers, *(p.detach().clone() for p in model.parameters()), torch.random.get_rng_state()]


def test_a_gpt_trains_the_same_bit_for_bit(tmp_path: Path) -> None:
    plain = train(lambda value, name: value, lambda: None)
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        watched = train(saver.save, saver.step)
    assert len(plain) == len(watched)
    for a, b in zip(plain, watched, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.view(-1).view(torch.uint8), b.view(-1).view(torch.uint8))
    for step in range(3):
        found = data(tmp_path, step)
        assert sum(not name.partition(".")[0].endswith("_grad") for name in found) >= 20
        arrived = [n for n, v in found.items() if "_grad." in n and v is not None]
        assert len(arrived) == 3 * 6 + 4  # each save but the ids


def test_gradients_are_those_of_retain_grad(tmp_path: Path) -> None:
    kept: dict[str, list[Any]] = {}

    def note(value: Any, name: str) -> Any:
        tensors = [value["q"], *value["kv"]] if isinstance(value, dict) else [value]
        for t in tensors:
            if t.requires_grad:
                t.retain_grad()
                kept.setdefault(name, []).append(t)
        return value

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    def run(look: Callable[[Any, str], Any]) -> None:
        with pytest.raises(Stop):
            train(look, stop)

    run(note)
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        run(saver.save)
    checked = 0
    for name, tensors in kept.items():
        if name == "heads":
            places = [(i, at) for i in range(3) for at in ("q", "kv.0", "kv.1")]
        else:
            places = [(i, None) for i in range(len(tensors))]
        for t, (i, at) in zip(tensors, places, strict=True):
            assert torch.equal(saved(tmp_path, f"{name}_grad.{i}.debug", at), t.grad), (name, i, at)
            checked += 1
    assert checked == 3 * 8 + 4


# -- gradients, one kind of tensor at a time ----------------------------------------------------------


def test_a_leaf_has_the_gradient_of_the_pass_and_not_the_accumulated_one(
    full: ps.Saver, tmp_path: Path
) -> None:
    w = torch.ones(3, requires_grad=True)
    for step in range(3):
        full.save(w, "w")
        (w * 2).sum().backward()
        full.step()
        assert saved(tmp_path, "w_grad.0.debug", step=step).tolist() == [2.0] * 3
    assert w.grad.tolist() == [6.0] * 3
    assert not w._backward_hooks  # nothing stays on a parameter


def test_a_tensor_used_several_times_has_the_total(full: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    before = y * 5
    full.save(y, "y")
    (before.sum() + (y * 7).sum() + y.exp().sum() * 0).backward()
    full.step()
    assert saved(tmp_path, "y_grad.0.debug").tolist() == [12.0, 12.0]


def test_saved_twice_each_has_its_gradient(full: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = full.save(x * 3, "y")
    full.save([y, {"again": y}], "both")
    full.save(y, "y")
    (y * 2).sum().backward()
    full.step()
    for record, at in (("y_grad.0.debug", None), ("y_grad.1.debug", None), ("both_grad.0.debug", "0"),
                       ("both_grad.0.debug", "1.again")):  # fmt: skip
        assert saved(tmp_path, record, at).tolist() == [2.0, 2.0]


def test_a_change_in_place_comes_after(full: ps.Saver, tmp_path: Path) -> None:
    """The record is of the value as it was saved, and so is its gradient."""
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    y = full.save(x * 1, "y")
    y.mul_(10)
    (y * 3).sum().backward()
    full.step()
    assert saved(tmp_path, "y.0.debug").tolist() == [-1.0, 2.0]
    assert saved(tmp_path, "y_grad.0.debug").tolist() == [30.0, 30.0]
    assert x.grad.tolist() == [30.0, 30.0]


def test_two_passes_through_one_graph(full: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = full.save({"y": x * 3}, "y")["y"]
    z = y * 2
    z.sum().backward(retain_graph=True)
    (z * 5).sum().backward()
    full.step()
    found = data(tmp_path)["y_grad.0.debug"]["y"]
    assert found["Max"] == 2
    assert [again["Max"] for again in found["later_passes"]] == [10]
    assert "dtype" not in found["later_passes"][0]
    assert saved(tmp_path, "y_grad.0.debug", "y").tolist() == [2.0, 2.0]


def test_where_no_gradient_comes_is_null(saver: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        saver.save(x * 2, "no_grad")
    with torch.inference_mode():
        saver.save(torch.ones(3), "inference")
    saver.save(torch.ones(2, dtype=torch.long), "ids")
    saver.save(x * 2, "unused")
    saver.save((x * 2).detach(), "detached")
    saver.save(x * 2, "not wanted", save_backward=False)
    saver.save([x, torch.ones(1), 5], "some")
    (x * 2).sum().backward()
    saver.step()
    found = data(tmp_path)
    assert [found[f"{n}_grad.0.debug"] for n in ("no_grad", "inference", "ids", "unused", "detached")] == [
        None
    ] * 5
    assert "not wanted_grad.0.debug" not in found
    first, *rest = found["some_grad.0.debug"]
    assert first["Max"] == 2
    assert rest == [None, None]
    report = json.loads((tmp_path / "step0" / "rank" / "report.json").read_text())
    assert report["counts"]["left_out"] == {"gradients that had not arrived": 1}


def test_a_gradient_after_the_step_is_not_recorded_and_hurts_nothing(saver: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = saver.save(x * 2, "y")
    saver.step()
    y.sum().backward()
    assert data(tmp_path)["y_grad.0.debug"] is None
    assert x.grad.tolist() == [2.0, 2.0]


def test_second_order(full: ps.Saver, tmp_path: Path) -> None:
    x = torch.tensor([2.0], requires_grad=True)
    y = full.save(x**3, "y")
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    full.save(g, "g")
    g.backward()
    full.step()
    assert x.grad.item() == 12.0
    found = data(tmp_path)
    assert found["y_grad.0.debug"]["Max"] == 1
    assert found["g.0.debug"]["Max"] == 12
    assert found["g_grad.0.debug"]["Max"] == 1


def test_backward_in_another_thread(full: ps.Saver, tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    y = full.save(x * 2, "y")
    with ThreadPoolExecutor() as pool:
        pool.submit(y.sum().backward).result()
    full.step()
    assert data(tmp_path)["y_grad.0.debug"]["Max"] == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_a_checkpoint(full: ps.Saver, tmp_path: Path, reentrant: bool) -> None:
    """The value is saved in both runs; the gradient comes where torch keeps the graph."""
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2, requires_grad=True)
    out = checkpoint(lambda x: full.save(x * 2, "y").exp(), x, use_reentrant=reentrant)
    out.sum().backward()
    full.step()
    found = data(tmp_path)
    assert found["y.0.debug"]["Max"] == found["y.1.debug"]["Max"] == 2
    with_gradient = [n for n in (0, 1) if found[f"y_grad.{n}.debug"] is not None]
    assert with_gradient == ([1] if reentrant else [0])


# -- values -------------------------------------------------------------------------------------------


def test_the_header_says_torch_even_when_numbers_came_first(full: ps.Saver, tmp_path: Path) -> None:
    full.save(1, "x")
    full.save(torch.ones(1), "t")
    full.step()
    full.save(1, "x")
    full.step()
    assert document(tmp_path / "step0" / "rank")["framework"] == "pytorch"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_save_inside_compiled_code_breaks_nothing(full: ps.Saver, tmp_path: Path, backend: str) -> None:
    def f(x: Any) -> Any:
        y = full.save(x * 2, "y")
        return y.sin().sum()

    x = torch.ones(3, requires_grad=True)
    out = torch.compile(f, backend=backend)(x)
    out.backward()
    full.step()
    reference = torch.ones(3, requires_grad=True)
    (reference * 2).sin().sum().backward()
    assert torch.equal(x.grad, reference.grad)
    assert data(tmp_path)["y.0.debug"]["Max"] == 2


def test_numbers_that_come_late_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from an accelerator: the leaf fetches numbers for many tensors at a time."""
    came_late: list[bool] = []
    opened, described = torch_saving.open_leaf, torch_saving.TorchSaving.leaf

    def leaf(self: Any, *about: Any) -> Any:
        found = described(self, *about)
        came_late.append(b"\x1an" in found)
        return found

    monkeypatch.setattr(
        torch_saving, "open_leaf", lambda options, *rest: opened(evolve(options, deferred=True), *rest)
    )
    monkeypatch.setattr(torch_saving.TorchSaving, "leaf", leaf)
    with ps.Saver(dump_path=tmp_path) as saver:
        x = torch.arange(4.0, requires_grad=True)
        y = saver.save({"a": [x * 2, x * 0.5]}, "y")["a"][0]
        loss = (y * y).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    found = data(tmp_path)
    assert [tensor["Max"] for tensor in found["y.0.debug"]["a"]] == [6, 1.5]
    gradient = found["y_grad.0.debug"]["a"][0]
    assert gradient["Max"] == 12 and found["y_grad.0.debug"]["a"][1] is None
    assert gradient["later_passes"] == [{key: gradient[key] for key in ("Max", "Min", "Mean", "Norm")}]
    assert came_late == [True] * 4
    report = json.loads((tmp_path / "step0" / "rank" / "report.json").read_text())
    assert report["counts"]["recorded"] == {"tensors": 3}
    assert report["norms"][0][0] == "y_grad.0.debug.a.0"


@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_a_large_tensor_is_written_while_it_is_counted(tmp_path: Path, mode: str) -> None:
    small = torch.randn(7, requires_grad=True)
    large = torch.randn(1 << 21, requires_grad=True)
    with ps.Saver(dump_path=tmp_path, task="tensor", summary_mode=mode) as saver:
        saver.save({"s": small, "l": large}, "x")
        (large * 2).sum().backward()
    found = data(tmp_path)
    assert list(found["x.0.debug"]["l"]) == list(found["x.0.debug"]["s"])
    assert found["x.0.debug"]["l"]["requires_grad"] is True
    assert torch.equal(saved(tmp_path, "x.0.debug", "l"), large)
    assert saved(tmp_path, "x_grad.0.debug", "l").unique().tolist() == [2.0]


# -- while torch makes a graph ------------------------------------------------------------------------


def test_no_look_is_seen_by_the_users_own_modes_and_subclasses(saver: ps.Saver) -> None:
    """The values, large ones that a thread writes among them, are asked for their kind and their gradient aside."""
    seen: list[str] = []

    class Functions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(torch.overrides.resolve_name(func) or str(func))
            return func(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(torch.overrides.resolve_name(func) or str(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Dispatched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    large, small = torch.ones(LARGE // 4, requires_grad=True), torch.ones(3, requires_grad=True)
    own = torch.ones(3).as_subclass(Own).requires_grad_()
    seen.clear()
    with Functions(), Dispatched():
        for name, value in {"large": large, "small": small, "own": own, "many": [large, {"a": own}]}.items():
            saver.save(value, name)
    assert not seen


def test_a_save_inside_a_trace_leaves_the_graph_as_it_is(full: ps.Saver, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self, look: Callable[[Any, str], Any]) -> None:
            super().__init__()
            self.w, self.look = nn.Parameter(torch.ones(3)), look

        def forward(self, x: Any) -> Any:
            return self.look(self.look(x * self.w, "a") + 1, "b")

    def work(look: Callable[[Any, str], Any]) -> Any:
        return torch.jit.trace(Net(look), torch.arange(3.0), check_trace=False)

    plain, saving = work(lambda x, name: x), work(full.save)
    assert saving.code == plain.code
    assert torch.equal(saving(torch.ones(3)), plain(torch.ones(3)))
    saving(torch.ones(3)).sum().backward()
    full.step()
    assert torch.equal(saved(tmp_path, "a.0.debug"), torch.arange(3.0))
    assert data(tmp_path)["a.0.debug"]["shape"] == [3]


def test_a_save_inside_a_symbolic_trace_or_a_transform_never_raises(full: ps.Saver, tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(lambda x: full.save(x, "fx") * 2)
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(torch.func.vmap(lambda x: full.save(x, "v") * 2)(torch.ones(3)), torch.full((3,), 2.0))
    assert torch.equal(torch.func.grad(lambda x: full.save(x, "g").sum())(torch.ones(3)), torch.ones(3))
    full.close()
    assert {"fx.0.debug", "v.0.debug", "g.0.debug"} <= set(data(tmp_path))


# -- a gradient that is lost never reads as one that never came ---------------------------------------

LOST = {"type": "lost", "value": None}


def test_a_gradient_that_cannot_be_described_is_lost_and_the_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = torch_saving.TorchSaving.leaf

    def leaf(self: Any, place: Any, value: Any, path: Any) -> Any:
        if "_grad" in place.record and path == (1,):
            raise ZeroDivisionError("ours")
        return described(self, place, value, path)

    monkeypatch.setattr(torch_saving.TorchSaving, "leaf", leaf)
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        a, b, c, alone = (torch.ones(2, requires_grad=True) for _ in range(4))
        saver.save([a, b, c, 1], "x")
        saver.save((None, alone), "y")
        loss = (a + 2 * b + 3 * alone).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.warns(RuntimeWarning, match="could not be saved"):
            saver.step()
    content = document(tmp_path / "step0/rank", lost=2)["data"]
    came, lost, *rest = content["x_grad.0.debug"]
    assert came["Max"] == 1 and "data_name" in came and rest == [None, None]
    for slot in (lost, content["y_grad.0.debug"][1]):
        assert {key: slot[key] for key in LOST} == LOST and "ZeroDivisionError: ours" in slot["lost"]
    assert len(list((tmp_path / "step0/rank/dump_tensor_data").iterdir())) == 5


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_file_that_is_lost_costs_that_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write = os.writev
    failing = [False]

    def writev(fd: int, parts: Any) -> int:
        if failing[0]:
            raise OSError(number, os.strerror(number))
        return write(fd, parts)

    monkeypatch.setattr(os, "writev", writev)
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:
        a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
        saver.save({"a": a, "b": b}, "x")
        failing[0] = True
        with pytest.warns(RuntimeWarning, match="could not write everything"):
            saver.save([a, np.ones(3)], "y", save_backward=False)
        (a * 2).sum().backward()
        failing[0] = False
        (b * 3).sum().backward()
        with pytest.warns(RuntimeWarning, match="could not be saved"):
            saver.step()
    content = data(tmp_path)
    for tensor in (*content["y.0.debug"], content["x_grad.0.debug"]["a"]):
        assert tensor["lost"] == f"tensor file: [Errno {number}] {os.strerror(number)}"
        assert "data_name" not in tensor and tensor["Max"] in (1, 2)
    assert content["x_grad.0.debug"]["b"]["Max"] == 3 and "data_name" in content["x_grad.0.debug"]["b"]


KILLED = """
import os, signal, sys
import probe_save as ps, torch
saver = ps.Saver(dump_path=sys.argv[1])
made = {name: torch.ones(2, requires_grad=True) for name in "abcd"}
made["none"] = torch.ones(2)
first = saver.save(dict(made), "x")
saver.save([made["a"]], "y")
made["b"].register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
out = made["a"] * 2 + made["b"] * 3 + made["c"] * 4
out.sum().backward()
"""


def test_a_kill_between_two_gradients_leaves_a_lost_one(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (rank,) = probe_format.open(tmp_path).ranks
    gradients = rank.records["x_grad.0.debug"].json
    assert gradients["none"] is None  # nothing was to come
    came = {name for name in "abcd" if "Max" in gradients[name]}
    assert came and "a" not in came
    for name in set("abcd") - came:
        assert {key: gradients[name][key] for key in LOST} == LOST
