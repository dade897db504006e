"""What a user calls, option by option, whatever the framework."""

from __future__ import annotations

import cProfile
import ctypes
import gc
import itertools
import pstats
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext as no_warning
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documents import rank_dir, records, strict, write_config
from framework import Framework
from opening import capture, opened
from probe_format.errors import UsageError


@pytest.fixture
def chain(framework: Framework) -> Any:
    return framework.sequence(framework.linear(3, 3), framework.linear(3, 1))


def _dense(framework: Framework, number: int = 0) -> str:
    return f"{framework.kind}.{number}.{framework.linear.__name__}"


def test_token_range_counts_the_models_calls_from_zero(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        debugger.start(chain, token_range=[1, 2])
        for _ in range(5):
            framework.gelu()
            chain(framework.ones(1, 3))
        debugger.stop()
        debugger.step()
    data, dense = records(tmp_path / "dump"), _dense(framework)
    assert [n for n in data if n.startswith(f"{dense}.forward")] == [
        f"{dense}.forward.0",
        f"{dense}.forward.1",
    ]
    # Between the second call and the third.
    assert len([n for n in data if n.startswith("Functional.gelu")]) == 1


def test_calls_of_a_token_range_that_do_not_come_are_named(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        for begins, warns in ((1, False), (3, True)):
            debugger.start(chain, token_range=[begins, 9])
            for _ in range(3):
                chain(framework.ones(1, 3))
            with (
                pytest.warns(RuntimeWarning, match="calls 3 to 9.* called 3 times, so nothing")
                if warns
                else no_warning()
            ):
                debugger.stop()
            debugger.step()
    for step in (0, 1):
        said = {
            item["what"]: item["why"]
            for item in strict(rank_dir(tmp_path / "dump", step) / "report.json")["not_seen"]
        }
        assert said["calls 3 to 9 of the model"].endswith("which was called 3 times")


def test_custom_functions_come_and_go(framework: Framework, tmp_path: Path) -> None:
    library = SimpleNamespace(__name__="library", twice=lambda x: x * 2)
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        debugger.register_custom_api(library, "twice", "Mine")
        debugger.start()
        library.twice(framework.ones(2))
        debugger.stop()
        debugger.restore_custom_api(library, "twice")
        debugger.start()
        library.twice(framework.ones(2))
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump")) == ["Mine.twice.0.forward", "Tensor.__mul__.0.forward"]


def test_steps_are_counted_from_where_the_user_says(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L0", step=[7]) as debugger:
        debugger.set_init_step(6)
        for _ in range(3):  # calls work on the class
            framework.debugger.start(chain)
            framework.train(chain, framework.ones(2, 3))
            framework.debugger.forward_backward_dump_end()
            framework.debugger.step()
    assert [p.name for p in (tmp_path / "dump").iterdir()] == ["step7"]


def test_two_stretches_of_one_step(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        debugger.start(chain)
        chain(framework.ones(1, 3))
        debugger.stop()
        chain(framework.ones(1, 3))  # not recorded
        debugger.start(chain)
        chain(framework.ones(1, 3))
        debugger.stop()
        debugger.step()
    dense = _dense(framework)
    names = [n for n in records(tmp_path / "dump") if n.startswith(f"{dense}.forward")]
    assert names == [f"{dense}.forward.0", f"{dense}.forward.1"]


def test_a_block_or_each_call_of_a_function_is_one_step(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        with debugger.one_step(chain):
            framework.train(chain, framework.ones(1, 3))

        @framework.debugger.one_step()
        def each(x: Any) -> Any:
            framework.train(chain, x)
            return x

        framework.gelu()
        assert [each(x) is x for x in (framework.ones(1, 3), framework.ones(2, 3))] == [True, True]
    for number in range(3):
        assert strict(rank_dir(tmp_path / "dump", number) / "report.json")["state"] == "complete"
    by_block, *by_call = [list(records(tmp_path / "dump", number)) for number in range(3)]
    assert by_call == [by_block, by_block]
    assert any(name.startswith(f"{_dense(framework)}.backward") for name in by_block)
    assert not any("gelu" in name for name in by_block)


def test_what_runs_after_its_call_is_no_step(framework: Framework, tmp_path: Path) -> None:
    async def train() -> None:
        pass

    async def batches() -> Any:
        yield

    class Trainer:
        def __call__(self) -> Any:
            yield

    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        for function in (train, batches, Trainer(), Trainer.__call__, partial(train)):
            with pytest.raises(TypeError, match=r"with debugger\.one_step"):
                debugger.one_step()(function)


def test_a_step_whose_block_raises_is_kept(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        with pytest.raises(KeyError, match="mine"), debugger.one_step(chain):
            chain(framework.ones(1, 3))
            raise KeyError("mine")
        framework.gelu()
        with debugger.one_step(chain):
            chain(framework.ones(1, 3))
    broken, next_one = (list(records(tmp_path / "dump", number)) for number in (0, 1))
    assert broken == next_one
    assert f"{_dense(framework)}.forward.0" in broken
    assert strict(rank_dir(tmp_path / "dump", 0) / "report.json")["state"] == "complete"


@pytest.mark.parametrize(
    "wrap", [lambda m: m, lambda m: [m], lambda m: (m,)], ids=["module", "list", "tuple"]
)
def test_a_model_given_once_stands_for_later_starts(
    framework: Framework, chain: Any, wrap: Callable[[Any], Any], tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, level="L0") as debugger:
        for given in ((wrap(chain),), ()):
            debugger.start(*given)
            framework.train(chain, framework.ones(2, 3))
            debugger.stop()
            debugger.step()
    first, second = (list(records(tmp_path / "dump", step)) for step in (0, 1))
    assert first == second and len(first) > 2


def test_the_debuggers_own_model_stands_before_that_of_an_earlier_start(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    other = framework.sequence(framework.linear(3, 2))
    with framework.debugger(str(write_config(tmp_path, level="L0")), model=chain) as debugger:
        for given in ((other,), ()):
            debugger.start(*given)
            framework.train(other, framework.ones(2, 3))
            framework.train(chain, framework.ones(2, 3))
            debugger.stop()
            debugger.step()
    seen = [sum(".forward" in name for name in records(tmp_path / "dump", step)) for step in (0, 1)]
    assert seen == [1, 2]


def test_a_model_that_is_gone_is_neither_kept_nor_used(framework: Framework, tmp_path: Path) -> None:
    model = framework.sequence(framework.linear(3, 3), framework.linear(3, 1))
    alive = weakref.ref(model)
    with opened(framework.debugger, tmp_path, level="L0") as debugger:
        debugger.start(model)
        framework.train(model, framework.ones(2, 3))
        debugger.stop()
        debugger.step()
        del model
        gc.collect()
        assert alive() is None
        with pytest.raises(UsageError, match="needs the model"):
            debugger.start()


def test_scope_reaches_from_begin_to_end_with_the_ends_output(framework: Framework, tmp_path: Path) -> None:
    functions = framework.functions

    def work() -> None:
        x = framework.ones(3)
        for name in ("relu", "gelu", "silu", "tanh", "sigmoid"):
            x = getattr(functions, name)(x)

    scope = ["Functional.gelu.0.forward", "Functional.tanh.0.forward"]
    data = capture(framework.debugger, tmp_path, work, level="L1", scope=scope)
    assert list(data) == [scope[0], "Functional.silu.0.forward", scope[1]]
    assert data[scope[1]]["output"][0]["Max"] > 0


def test_list_of_a_modules_call_brings_its_content(framework: Framework, chain: Any, tmp_path: Path) -> None:
    def work() -> None:
        framework.train(chain, framework.ones(2, 3))

    first = f"{_dense(framework)}.forward.0"
    data = capture(framework.debugger, tmp_path, work, chain, level="mix", list=[first])
    assert first in data
    assert [name for name in data if not name.startswith(f"{framework.kind}.")], "the functions inside"
    assert not [name for name in data if name.startswith(f"{framework.kind}.1")]


def test_extra_info_false_writes_the_records_alone(framework: Framework, chain: Any, tmp_path: Path) -> None:
    def work() -> None:
        framework.train(chain, framework.ones(2, 3))

    capture(framework.debugger, tmp_path, work, chain, level="mix", extra_info=False)
    assert {p.name for p in rank_dir(tmp_path / "dump").iterdir()} == {"dump.json", "report.json"}


@pytest.mark.parametrize(
    ("mode", "has"),
    [
        (["forward"], {"forward"}),
        (["backward"], {"backward", "parameters_grad"}),
        (["input"], {"forward", "backward", "parameters_grad"}),
    ],
    ids=str,
)
def test_data_mode(framework: Framework, chain: Any, mode: list[str], has: set[str], tmp_path: Path) -> None:
    def work() -> None:
        framework.train(chain, framework.ones(2, 3))

    data = capture(framework.debugger, tmp_path, work, chain, level="L0", data_mode=mode)
    kinds = {kind for kind in ("forward", "backward", "parameters_grad") for n in data if f".{kind}" in n}
    assert kinds == has
    if mode == ["input"]:
        assert "output" not in data[f"{_dense(framework)}.forward.0"]


def test_tensor_list_saves_some(framework: Framework, chain: Any, tmp_path: Path) -> None:
    def work() -> None:
        framework.train(chain, framework.ones(2, 3))

    data = capture(framework.debugger, tmp_path, work, chain, level="L0", tensor_list=[_dense(framework, 1)])
    assert "data_name" in data[f"{_dense(framework, 1)}.forward.0"]["output"][0]
    assert "data_name" not in data[f"{_dense(framework)}.forward.0"]["output"][0]


def test_a_step_costs_the_same_whatever_was_dumped_before(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    def calls(folder: Path) -> int:
        profile = cProfile.Profile()
        with opened(framework.debugger, folder, level="L0") as debugger:
            for last in (False, True):
                if last:
                    profile.enable()
                debugger.start(chain)
                debugger.stop()
                debugger.step()
        profile.disable()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    for number in range(100, 200):  # earlier steps
        (tmp_path / "many" / "dump" / f"step{number}" / "rank").mkdir(parents=True)
    calls(tmp_path / "first")
    assert abs(calls(tmp_path / "many") - calls(tmp_path / "none")) < 100


def nested(framework: Framework, depth: int) -> Any:
    """Modules in one another."""
    net: Any = framework.module_of("Inmost", lambda _, x: x * 2)
    for _ in range(depth):
        outer = framework.module_of("Outer", lambda self, x: self.inner(x) + 1)
        outer.inner = net
        net = outer
    return net


def depth_of(framework: Framework, works: Callable[[int], Any]) -> int:
    """The largest depth at which a call works, up to 300."""
    low, high = 1, 300
    while low < high:
        depth = (low + high + 1) // 2
        try:
            works(depth)
            low = depth
        except RecursionError:
            high = depth - 1
    return low


@pytest.mark.parametrize("level", [pytest.param("L0", marks=pytest.mark.once), "mix"])
def test_modules_nest_as_deep_as_without_probe(framework: Framework, level: str, tmp_path: Path) -> None:
    before = sys.getrecursionlimit()
    deepest = depth_of(framework, lambda depth: nested(framework, depth)(framework.ones(2)))
    net = nested(framework, deepest)
    with opened(framework.debugger, tmp_path, level=level) as debugger:
        debugger.start(net)
        net(framework.ones(2))
        sys.setrecursionlimit(sys.getrecursionlimit())  # what the run leaves as it is
        debugger.stop()
        assert sys.getrecursionlimit() == before
        debugger.step()
        debugger.start(net)
        sys.setrecursionlimit(before + 7)
        debugger.stop()
        assert sys.getrecursionlimit() == before + 7, "the run's own limit stays"
        sys.setrecursionlimit(before)
    assert sum("forward" in name for name in records(tmp_path / "dump")) >= deepest


class _Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2 returns: ten numbers, of which the fifth is mapped, and the eighth in use."""

    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def _in_use() -> int:
    """Return how many bytes of malloc's are in use, whoever asked for them."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    gc.collect()
    numbers = mallinfo().numbers
    return int(numbers[4] + numbers[7])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not count bytes")
def test_a_dumped_step_leaves_no_memory_behind(framework: Framework, chain: Any, tmp_path: Path) -> None:
    counted = []
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        for step in range(41):
            debugger.start(chain)
            framework.train(chain, framework.ones(2, 3))
            for number in range(4):  # other ones in each step, as an optimizer's
                framework.ones(2) * (step * 4 + number + 0.5)
            debugger.stop()
            debugger.step()
            if step % 15 == 10:  # the first steps make what is made once
                counted.append(_in_use())
    # The smaller of two stretches: what happens once is in one of them. MindSpore's own steps leave 3,000 bytes each.
    assert min(b - a for a, b in itertools.pairwise(counted)) < 15 * 8000


@pytest.mark.parametrize(
    "keys", [{}, {"async_dump": True}, {"task": "tensor"}], ids=["plain", "late", "tensor"]
)
def test_a_dumped_step_is_gone_without_the_garbage_collector(
    framework: Framework, chain: Any, tmp_path: Path, keys: dict[str, Any]
) -> None:
    """What refers to itself stays until the collector comes, which may be many steps and much memory later."""

    def ours() -> Counter[str]:
        names = (f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
        return Counter(name for name in names if name.startswith("probe_"))

    with opened(framework.debugger, tmp_path, level="mix", **keys) as debugger:
        for step in range(4):
            if step == 3:
                gc.collect()
                gc.disable()
                before = ours()
            debugger.start(chain)
            framework.train(chain, framework.ones(2, 3))
            debugger.stop()
            debugger.step()
        try:
            assert ours() - before == Counter()
        finally:
            gc.enable()


@pytest.mark.filterwarnings("ignore:.*give start.. a rank_id")
def test_a_rank_that_the_script_gives_is_the_rank(framework: Framework, chain: Any, tmp_path: Path) -> None:
    """As msprobe 26.2 takes it: in the folder's name, in the header and for the key `rank`; it holds from then on."""
    with opened(framework.debugger, tmp_path, level="L0", rank=[3]) as debugger:
        for given in ({}, {"rank_id": 3}, {}, {"rank_id": 4}):
            debugger.start(chain, **given)
            chain(framework.ones(1, 3))
            debugger.stop()
            debugger.step()
        with pytest.raises(UsageError, match="rank_id must be a whole number"):
            debugger.start(chain, rank_id="3")
    found = [path.relative_to(tmp_path / "dump") for path in (tmp_path / "dump").rglob("dump.json")]
    assert sorted(map(str, found)) == ["step1/rank3/dump.json", "step2/rank3/dump.json"]
    assert strict(tmp_path / "dump" / found[0])["rank"] == 3


__all__ = ["chain", *(name for name in dir() if name.startswith("test_"))]
