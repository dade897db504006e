"""Threads and exceptions: counts have no gap, and one failed call costs one record."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dumping import agrees, capture, construct, dumped, opened, records, report
from messages import silent
from probe_torch.training_threads import others_train
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim import optimizer as optimizers

THREADS, CALLS = 8, 40


def in_threads(work: Callable[[int], object], count: int = THREADS) -> None:
    """Run `work(i)` in `count` threads that start together; the first exception is raised here."""
    barrier = threading.Barrier(count)

    def body(i: int) -> None:
        barrier.wait(30)
        work(i)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(body, range(count)))


def test_functions_in_threads(tmp_path: Path) -> None:
    def work(i: int) -> None:
        for k in range(CALLS):
            F.gelu(torch.full((i + 1,), float(k)))

    data = capture(tmp_path, lambda: in_threads(work), level="L1")
    calls = {name: record for name, record in data.items() if name.startswith("Functional.gelu.")}
    assert set(calls) == {f"Functional.gelu.{n}.forward" for n in range(THREADS * CALLS)}
    sizes: Counter[int] = Counter()
    for record in calls.values():
        (given,), (made,) = record["input_args"], record["output"]
        # Each output belongs to the input that it stands beside.
        assert given["shape"] == made["shape"]
        assert agrees(made, F.gelu(torch.full(tuple(given["shape"]), given["Max"])))
        sizes[given["shape"][0]] += 1
    assert sizes == {i + 1: CALLS for i in range(THREADS)}


def test_models_in_threads(tmp_path: Path) -> None:
    """One model shared by all threads, forward and backward; each thread's calls have their own parents."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * 2

    net = Net()

    def work(i: int) -> None:
        for _ in range(4):
            x = torch.full((1, 4), float(i), requires_grad=True)
            torch.autograd.grad(net(x).sum(), x)

    data = capture(tmp_path, lambda: in_threads(work), net)
    count = THREADS * 4
    for kind in ("inner.Sequential", "inner.0.Linear", "inner.1.Tanh"):
        for way in ("forward", "backward"):
            assert {n for n in data if n.startswith(f"Module.{kind}.{way}.")} == {
                f"Module.{kind}.{way}.{n}" for n in range(count)
            }
    tree = construct(tmp_path / "dump")
    parents = Counter(tree[f"Module.inner.0.Linear.forward.{n}"] for n in range(count))
    assert parents == {f"Module.inner.Sequential.forward.{n}": 1 for n in range(count)}
    assert all(tree[f"Module.inner.Sequential.forward.{n}"] is None for n in range(count))
    assert not report(tmp_path / "dump")["faults"]


def test_an_exception_in_a_module_leaves_the_tree_right(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not today")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrap = nn.Sequential(nn.Linear(2, 2), Fails())
            self.after = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.wrap(x)
            except ValueError:
                return self.after(x)

    net = Net()
    data = capture(tmp_path, lambda: net(torch.ones(1, 2)).sum().backward(), net)
    tree = construct(tmp_path / "dump")
    assert data["Module.wrap.1.Fails.forward.0"]["raised"] == "ValueError: not today"
    assert data["Module.wrap.Sequential.forward.0"]["raised"] == "ValueError: not today"
    assert data["Module.wrap.Sequential.forward.0"]["output"] == []
    assert tree["Module.after.Linear.forward.0"] is None
    assert tree["Functional.linear.1.forward"] == "Module.after.Linear.forward.0"
    assert "Module.after.Linear.backward.0" in data


def test_a_keyboard_interrupt_is_unwound_too(tmp_path: Path) -> None:
    class Stops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyboardInterrupt

    net = nn.Sequential(Stops())

    def work() -> None:
        with pytest.raises(KeyboardInterrupt):
            net(torch.ones(1))
        F.gelu(torch.ones(1))

    capture(tmp_path, work, net)
    assert construct(tmp_path / "dump")["Functional.gelu.0.forward"] is None


def test_generators_and_recursion(tmp_path: Path) -> None:
    """Modules entered in a generator that is never finished, and a module that calls itself."""

    class Recurses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor, depth: int = 0) -> Tensor:
            x = self.fc(x)
            return self(x, depth + 1) if depth < 2 else x

    net = nn.Sequential(Recurses())
    data = capture(tmp_path, lambda: net(torch.ones(1, 2)).sum().backward(), net)
    tree = construct(tmp_path / "dump")
    assert [tree[f"Module.0.Recurses.forward.{n}"] for n in range(3)] == [
        None,
        "Module.0.Recurses.forward.0",
        "Module.0.Recurses.forward.1",
    ]
    assert {f"Module.0.Recurses.backward.{n}" for n in range(3)} <= data.keys()


@pytest.mark.parametrize("keys", [{"level": "mix"}, {"level": "L1", "list": ["tanh"]}], ids=str)
def test_counts_are_those_of_the_dump_while_threads_run(keys: dict[str, Any], tmp_path: Path) -> None:
    """start, stop and step while eight threads go on calling: no count is torn off its record."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    running, ran = True, [0] * THREADS

    def body(i: int) -> None:
        while running:
            net(torch.ones(1, 2))
            ran[i] += 1

    def while_they_run() -> None:
        """Wait until so many calls have ended that as many as there are threads began after this did."""
        enough, give_up = sum(ran) + 2 * THREADS, time.monotonic() + 120
        while sum(ran) < enough:
            assert time.monotonic() < give_up, ran
            time.sleep(0.001)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(THREADS)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    steps = 4
    try:
        for thread in threads:
            thread.start()
        with silent(), opened(tmp_path, **keys) as debugger:
            for _ in range(steps):
                with debugger.one_step(net):
                    while_they_run()
    finally:
        running = False
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join(60)
    calls = 0
    for step in range(steps):
        said = report(tmp_path / "dump", step)
        counts = {kind: sum(n for what, n in said["counts"][kind].items() if what != "tensors")
                  for kind in ("seen", "recorded", "filtered", "failed")}  # fmt: skip
        assert counts["seen"] == counts["recorded"] + counts["filtered"] + counts["failed"], (step, counts)
        assert counts["recorded"] == sum(".forward" in name for name in records(tmp_path / "dump", step)), (
            step
        )
        assert not said["faults"] and not counts["failed"]
        calls += counts["seen"]
    assert calls >= steps * THREADS


def test_gradients_of_one_parameter_from_many_threads_have_numbers_of_their_own(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        data = capture(
            tmp_path, lambda: in_threads(lambda i: [net(torch.ones(1, 2)).sum().backward() for _ in range(5)]),
            net, level="L0",
        )  # fmt: skip
    finally:
        sys.setswitchinterval(interval)
    base = "Module.0.Linear.parameters_grad"
    arrivals = {base, *(f"{base}.{n}" for n in range(1, THREADS * 5))}
    assert {name for name in data if name.startswith(base)} == arrivals
    assert all(set(data[name]) == {"weight", "bias"} for name in arrivals)


@contextmanager
def beside(work: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Run `work` in another thread until it calls what it gets; from there on when this is left."""
    came, may_go = threading.Event(), threading.Event()

    def wait() -> None:
        came.set()
        may_go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work, wait)
        done.add_done_callback(lambda _: came.set())
        came.wait(60)
        try:
            yield
        finally:
            may_go.set()
        done.result(60)


def one_step(debugger: Any, model: nn.Module) -> None:
    debugger.start(model)
    debugger.stop()
    debugger.step()


def test_gradients_are_not_read_while_another_thread_may_set_them(tmp_path: Path) -> None:
    """torch sets them without Python's lock: who reads them meanwhile reads what is freed."""
    readers: list[threading.Thread] = []

    class Read(nn.Parameter):
        @property
        def grad(self) -> Any:
            readers.append(threading.current_thread())
            return Tensor.grad.__get__(self)  # type: ignore[attr-defined]

        @grad.setter
        def grad(self, value: Any) -> None:
            Tensor.grad.__set__(self, value)  # type: ignore[attr-defined]

    model = nn.Sequential(nn.Linear(2, 2))
    model[0].weight = Read(torch.ones(2, 2))

    def train(wait: Callable[[], None]) -> None:
        loss = model(torch.ones(2)).sum()
        loss.register_hook(lambda grad: wait())
        loss.backward()

    with opened(tmp_path, level="L0") as debugger:
        with beside(train):
            one_step(debugger, model)
            assert not readers
        one_step(debugger, model)
        assert readers
        with beside(train):  # only as the step begins
            debugger.start(nn.Sequential(model, nn.Sequential(nn.Linear(2, 2))))  # of which one is not called
        debugger.stop()
        debugger.step()
    said = [[row["what"] for row in report(tmp_path / "dump", step)["not_seen"]] for step in range(3)]
    assert [any("without a hook" in what for what in whats) for whats in said] == [True, False, True]


def test_a_thread_that_only_computes_sets_no_gradients(tmp_path: Path) -> None:
    """As a server's, which answers another request: nothing is missed there."""
    model = nn.Sequential(nn.Linear(2, 2))

    def serve(wait: Callable[[], None]) -> None:
        with torch.inference_mode():
            model(torch.ones(2))
            wait()
            model(torch.ones(2))

    with opened(tmp_path, level="L0") as debugger:
        debugger.start(model)
        with beside(serve):
            debugger.stop()
            debugger.step()
        with beside(serve):
            one_step(debugger, model)
        one_step(debugger, model)  # alone, what a thread made stay goes
    said = [[row["what"] for row in report(tmp_path / "dump", step)["not_seen"]] for step in range(2)]
    assert said == [[], ["Module.0.Linear"]]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_an_update_goes_on_whose_hooks_a_stop_takes_away(level: str, tmp_path: Path) -> None:
    """torch goes through its table of hooks on optimizers, which must not change under it."""
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    waits: list[Callable[[], None]] = []

    def user(*_: Any) -> None:
        for wait in waits:
            wait()

    def update(wait: Callable[[], None]) -> None:
        waits.append(wait)
        optimizer.step()

    hooks = optimizers.register_optimizer_step_pre_hook(user), optimizer.register_step_pre_hook(user)
    tables = [getattr(optimizers, f"_global_optimizer_{when}_hooks") for when in ("pre", "post")]
    tables.append(optimizer._optimizer_step_pre_hooks)
    before = [dict(table) for table in tables]
    with opened(tmp_path, level=level) as debugger:
        one_step(debugger, model)
        debugger.start(model)
        with beside(update):
            debugger.stop()
            debugger.step()
        one_step(debugger, model)
    assert [dict(table) for table in tables] == before
    for hook in hooks:
        hook.remove()


def test_the_limit_of_recursion_stays_while_a_thread_is_deep(tmp_path: Path) -> None:
    """Python ends the process where a thread is far deeper than a limit that is lowered."""

    def deep(wait: Callable[[], None], frames: int) -> None:
        deep(wait, frames - 1) if frames else wait()

    before = sys.getrecursionlimit()
    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        with beside(lambda wait: deep(wait, before)):
            debugger.stop()
            debugger.start()
            debugger.stop()
            assert sys.getrecursionlimit() == 2 * before
        debugger.start()
        debugger.stop()
        assert sys.getrecursionlimit() == before


def test_threads_that_start_and_stop_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    model, limit, linear = nn.Sequential(nn.Linear(2, 2)), sys.getrecursionlimit(), F.linear
    with opened(tmp_path, level="mix") as debugger, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each is told that the other has started

        def work(i: int) -> None:
            for _ in range(6):
                one_step(debugger, model)

        in_threads(work, 2)
        debugger.close()
    assert (sys.getrecursionlimit(), F.linear) == (limit, linear)
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())  # type: ignore[attr-defined]


def test_a_thread_that_is_in_a_region_as_a_step_ends_enters_it_anew_in_the_next(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model(torch.ones(2)).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)

    def updates(wait: Callable[[], None]) -> None:
        hook = optimizer.register_step_pre_hook(lambda *_: wait())
        optimizer.step()
        hook.remove()
        optimizer.step()

    with dumped(tmp_path, model, level="mix") as debugger, beside(updates):
        debugger.stop()
        debugger.step()
        debugger.start(model)
    parents = construct(tmp_path / "dump", 1)
    added = [parent for name, parent in parents.items() if name.startswith("Tensor.add_")]
    assert added and "optimizer" in str(added[-1])


def test_a_thread_that_loads_data_does_not_train(tmp_path: Path) -> None:
    """It pins memory, by functions that are collected: gradients are read as if it was not there."""

    class Loaded(torch.utils.data.Dataset[Tensor]):
        def __getitem__(self, i: int) -> Tensor:
            if threading.current_thread() is not threading.main_thread():
                waits[0]()
            return torch.ones(2).add(1)

        def __len__(self) -> int:
            return 1

    waits: list[Callable[[], None]] = []

    def load(wait: Callable[[], None]) -> None:
        waits.append(wait)
        list(torch.utils.data.DataLoader(Loaded()))

    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        with beside(load):
            assert not others_train()
        debugger.stop()
        with beside(lambda wait: (nn.Identity()(torch.ones(1)), wait())):
            assert not others_train()
        debugger.start()
        with beside(lambda wait: (torch.ones(2).add(1), wait())):
            assert others_train()


def test_a_thread_that_traces_as_a_step_ends_is_recorded_in_the_next(tmp_path: Path) -> None:
    """What torch runs with fake tensors is left out, and that thread is not for good."""

    def trace(wait: Callable[[], None]) -> None:
        def traced(x: Tensor) -> Tensor:
            wait()
            return F.relu(x)

        make_fx(traced, tracing_mode="fake")(torch.ones(2))
        F.gelu(torch.ones(2))

    with dumped(tmp_path, level="L1") as debugger, beside(trace):
        debugger.stop()
        debugger.step()
        debugger.start()
    assert "Functional.gelu.0.forward" in records(tmp_path / "dump", 1)


def test_greenlets_that_switch_in_a_module_cost_later_steps_nothing(tmp_path: Path) -> None:
    """They end in another order than they began, as gevent's workers do where requests wait."""
    greenlet: Any = pytest.importorskip("greenlet")
    around = greenlet.getcurrent()

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            if len(x) < 3:
                around.switch()
            return self.layer(x)  # type: ignore[no-any-return]

    model = nn.Sequential(Waits(), nn.ReLU())
    with opened(tmp_path, level="L0") as debugger:
        with debugger.one_step(model):
            requests = [greenlet.greenlet(lambda n=n: model(torch.ones(n, 2))) for n in (1, 2)]
            for request in requests * 2:
                request.switch()
        with debugger.one_step(model):
            model(torch.ones(5, 2))
    first, second = (records(tmp_path / "dump", i) for i in range(2))
    assert {
        f"Module.0.{name}.forward.{n}" for n in range(2) for name in ("Waits", "layer.Linear")
    } <= first.keys()
    assert {"Module.0.Waits.forward.0", "Module.0.layer.Linear.forward.0"} <= second.keys()
