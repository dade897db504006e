"""What is compiled sees the originals, and is one API: Jit.{name}."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from bytecode import CAPTURES_BYTECODE, needs_bytecode
from mindspore import Tensor, mint, nn, ops
from mindspore._c_expression import GraphExecutor_
from mindspore_dumping import bits, trained
from mindspore_launching import FORKS
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.jit_guard import jit_places
from probe_mindspore.patching.patches import Patches
from probe_runtime.patching.switch import is_muted, muted
from tapping import Recorder, identities

X = Tensor(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
MODES = ("ast", "bytecode") if CAPTURES_BYTECODE else ("ast",)


def function(x):  # type: ignore[no-untyped-def]
    return ops.relu(x) + mint.exp(x).sum() - x.mean()


def helper(x):  # type: ignore[no-untyped-def]
    return ops.gelu(x)


class Plain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 4, weight_init="normal")
        self.act = ops.ReLU()

    def construct(self, x):  # type: ignore[no-untyped-def]
        return self.act(helper(self.dense(x))).sum()


class Ast(Plain):
    @ms.jit
    def construct(self, x):  # type: ignore[no-untyped-def]
        return self.act(helper(self.dense(x))).sum()


class Bytecode(Plain):
    @ms.jit(capture_mode="bytecode")
    def construct(self, x):  # type: ignore[no-untyped-def]
        return self.act(helper(self.dense(x))).sum()


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(tap: Recorder) -> Patches:
    return Patches(load_apis(views=True), tap)


@pytest.fixture
def guarded(patches: Patches) -> Iterator[Callable[..., Any]]:
    """A context that has the guard and the patches in place."""
    places = jit_places()

    @contextlib.contextmanager
    def context(*models: nn.Cell) -> Iterator[None]:
        patches.apply(*models)
        try:
            yield
        finally:
            patches.undo()

    before = [vars(place.owner).get(place.name) for place in places]
    yield context
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert identities([vars(place.owner).get(place.name) for place in places]) == identities(before)
    assert not is_muted()


@contextlib.contextmanager
def graph_mode() -> Iterator[None]:
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.mark.parametrize("mode", MODES)
def test_a_function(mode: str, guarded: Any, tap: Recorder) -> None:
    want = bits(ms.jit(function, capture_mode=mode)(X))
    jitted = ms.jit(function, capture_mode=mode)
    with guarded():
        first, second = jitted(X), jitted(X)
    after = jitted(X)
    assert bits(first) == bits(second) == bits(after) == want
    assert tap.calls == ["Jit.function", "Jit.function"]


def test_compiled_before_and_run_while_patched(guarded: Any, tap: Recorder) -> None:
    for mode in MODES:
        jitted = ms.jit(function, capture_mode=mode)
        want = bits(jitted(X))
        with guarded():
            assert bits(jitted(X)) == want
            assert bits(jitted(X[:2])) == bits(ms.jit(function, capture_mode=mode)(X[:2]))  # compiled anew
    assert tap.calls.count("Jit.function") == 3 * len(MODES)


@pytest.mark.parametrize("kind", [Ast, pytest.param(Bytecode, marks=needs_bytecode)])
def test_a_cell_with_gradients(kind: type[Plain], guarded: Any, tap: Recorder) -> None:
    ms.set_seed(1)
    want = trained(kind(), X)
    ms.set_seed(1)
    net = kind()
    with guarded(net):
        during = trained(net, X)
    assert during == want == trained(net, X)
    assert tap.calls == [f"Jit.{kind.__name__}"]


def test_the_arguments_are_the_cells_too(patches: Patches, guarded: Any) -> None:
    seen: list[Any] = []

    def tap(label: Any, original: Any, args: Any, kwargs: Any) -> Any:
        seen.append((label.name, [type(value).__name__ for value in args], kwargs))
        return original(*args, **kwargs)

    patches.tap = tap
    net = Ast()
    with guarded(net):
        net(X)
        ms.jit(function)(x=X)
    assert [name for name, *_ in seen] == ["Jit.Ast", "Jit.function"]
    assert seen[0][1] == ["Ast", "Tensor"]


def test_graph_mode(guarded: Any, tap: Recorder) -> None:
    def run(net: Plain) -> list[bytes]:
        with graph_mode():
            return bits((net(X), ms.value_and_grad(net, None, net.trainable_params())(X), net(X)))

    ms.set_seed(1)
    want = run(Plain())
    ms.set_seed(1)
    net = Plain()
    with guarded(net):
        during = run(net)
    assert during == want == run(net)
    # The gradient of a Cell is a graph too, and MindSpore calls it after_grad.
    assert tap.calls == ["Jit.Plain", "Jit.after_grad", "Jit.Plain"]


def test_a_training_step_in_graph_mode(guarded: Any, tap: Recorder) -> None:
    def run() -> list[bytes]:
        ms.set_seed(2)
        net = Plain()
        step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
        with graph_mode():
            return bits([step(X), step(X), *net.trainable_params()])

    want = run()
    with guarded():
        assert run() == want
    assert tap.calls == ["Jit.TrainOneStepCell"] * 2


def test_nothing_leaks_into_what_is_compiled_by_the_way(guarded: Any, tap: Recorder) -> None:
    def vmapped(x):  # type: ignore[no-untyped-def]
        return ops.relu(x) + 1

    want = bits([ops.vmap(vmapped)(X), *ms.jvp(vmapped, X, X)])
    with guarded():
        assert bits([ops.vmap(vmapped)(X), *ms.jvp(vmapped, X, X)]) == want
    assert [name for name in tap.calls if not name.startswith("Jit.")] == []


def test_the_compiler_sees_the_originals(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    relu = vars(ops)["relu"]
    seen: list[tuple[bool, bool]] = []
    kinds = [kind for kind in {GraphExecutor_, type(_executor())} if "compile" in vars(kind)]
    for kind in kinds:

        def watched(self: Any, *args: Any, _compile: Any = kind.compile) -> Any:
            seen.append((vars(ops)["relu"] is relu, "__add__" in vars(Tensor)))
            return _compile(self, *args)

        monkeypatch.setattr(kind, "compile", watched)
    here = "__add__" in vars(Tensor)
    with guarded():
        assert vars(ops)["relu"] is not relu
        ms.jit(function)(X)
        with graph_mode():
            Plain()(X)
    assert seen == [(True, here)] * 2


def _executor() -> Any:
    import mindspore._c_expression as library

    kind = getattr(library, "JitExecutor_", GraphExecutor_)
    return kind.get_instance()


@pytest.mark.parametrize("mode", MODES)
def test_an_error_inside(
    mode: str, guarded: Any, tap: Recorder, patches: Patches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the compiler leaves a report in the working directory

    def wrong(x):  # type: ignore[no-untyped-def]
        return ops.matmul(x, x[:3])

    with pytest.raises(Exception) as plain:
        ms.jit(wrong, capture_mode=mode)(X).asnumpy()
    with guarded():
        with pytest.raises(type(plain.value)):
            ms.jit(wrong, capture_mode=mode)(X).asnumpy()
        assert patches.applied
        ops.relu(X)
    assert tap.calls[-1] == "Functional.relu"


@needs_bytecode
def test_jit_inside_jit_and_inside_an_api(guarded: Any, tap: Recorder, patches: Patches) -> None:
    inner = ms.jit(helper)

    def outer(x):  # type: ignore[no-untyped-def]
        return inner(x) + 1

    holder: Any = type("holder", (), {"call": staticmethod(lambda x: inner(x))})
    patches.add(holder, "call", "Mine")
    with guarded():
        ms.jit(outer)(X)
        holder.call(X)
    assert tap.calls == ["Jit.outer", "Mine.call"]
    with guarded():
        nested = ms.jit(lambda_free, capture_mode="bytecode")
        nested(X)
    assert tap.calls[2:] == ["Jit.lambda_free"]


@ms.jit(capture_mode="bytecode")
def inside(x):  # type: ignore[no-untyped-def]
    return ops.tanh(x)


def lambda_free(x):  # type: ignore[no-untyped-def]
    return inside(x) * 2


TRACED = """
import mindspore as ms, numpy as np
from mindspore import Tensor, ops
from probe_runtime.patching.switch import is_muted
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.patches import Patches

calls = []
patches = Patches(load_apis(), lambda label, f, args, kwargs: calls.append(label.name) or f(*args, **kwargs))
x = Tensor(np.ones((2, 2), np.float32))
def function(x):
    return ops.relu(x) + ops.exp(x)
want = function(x).asnumpy()
jitted = ms.jit(function, capture_mode="trace")
with patches:
    first, second = jitted(x).asnumpy(), jitted(x).asnumpy()
    assert calls == [], calls
    ops.relu(x)
assert (first == want).all() and (second == want).all()
assert calls == ["Functional.relu"] and not is_muted(), calls
"""


def test_a_traced_function_is_not_recorded(tmp_path: Path) -> None:
    # In a process of its own: MindSpore's tracing fails where a frame has no source, as pytest's first ones.
    script = tmp_path / "traced.py"
    script.write_text(TRACED)
    FORKS.run(str(script), cwd=tmp_path)


def test_stopped_from_inside(patches: Patches, guarded: Any) -> None:
    def tap(label: Any, original: Any, args: Any, kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        patches.undo()
        return result

    patches.tap = tap
    for mode in MODES:
        with guarded():
            jitted = ms.jit(function, capture_mode=mode)
            want = bits(jitted(X))
        assert bits(jitted(X)) == want


def test_wrappers_that_the_user_bound_meanwhile(guarded: Any, tap: Recorder) -> None:
    """In a closure, a default and an attribute, where nothing puts the original back before it is compiled."""

    class Late(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.act = ops.gelu

        def construct(self, x):  # type: ignore[no-untyped-def]
            return self.act(x)

    def run() -> list[Any]:
        act, method = ops.tanh, Tensor.abs

        def closure(x):  # type: ignore[no-untyped-def]
            return act(x) - method(x)

        def default(x, act=ops.relu):  # type: ignore[no-untyped-def]
            return act(x)

        def vmapped() -> Any:
            return ops.vmap(ops.relu)(X)

        late = Late()
        with graph_mode():
            found = [late(X)]
        kept.append(ms.jit(ops.relu))
        found += [ms.jit(closure)(X), ms.jit(default)(X), vmapped(), kept[-1](X)]
        return bits(found)

    kept: list[Any] = []
    want = run()
    with guarded():
        assert run() == want
    assert tap.calls == ["Jit.Late", "Jit.closure", "Jit.default", "Jit.after_vmap", "Jit.relu"]
    assert bits(kept[1](X[:2])) == bits(kept[0](X[:2]))  # compiled anew after the dump


def test_muted_calls_are_no_api(guarded: Any, tap: Recorder) -> None:
    with guarded(), muted():
        for mode in MODES:
            ms.jit(function, capture_mode=mode)(X)
    assert tap.calls == []


def test_threads_that_compile(guarded: Any, tap: Recorder) -> None:
    """Whatever the others see meanwhile, each thread gets its own result, and all is as before at the end."""
    want, got, relu = bits(function(X)), [], vars(ops)["relu"]

    def work() -> None:
        got.append(bits(function(X)))

    with guarded():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert bits(ms.jit(function)(X)) == bits(ms.jit(function)(X))
        for thread in threads:
            thread.join()
    assert got == [want] * 4
    assert vars(ops)["relu"] is relu
