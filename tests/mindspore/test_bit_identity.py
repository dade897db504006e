"""Promise 1: a watched run is the unwatched run, bit for bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import compiled_zoo
import mindspore
import mindspore_zoo as zoo
import numpy as np
import pytest
from mindspore_dumping import leaves, load, opened, records, strict, validate

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")
_CHANCES = 12


@cache
def unwatched(case: str, variant: str) -> list[zoo.Trace]:
    """Runs without Probe; MindSpore's own kernels now and then differ in a last bit (by memory alignment)."""
    return [zoo.train(compiled_zoo.ALL[case], variant)]


def _seen(traces: list[zoo.Trace], trace: zoo.Trace) -> list[str]:
    """The names of the values that none of the traces has."""
    return [
        name
        for name in trace
        if all(name in zoo.differences({name: t[name]}, {name: trace[name]}) for t in traces)
    ]


def assert_same(case: str, variant: str, watch: zoo.Watch) -> None:
    truth = unwatched(case, variant)
    assert zoo.finite(truth[0])
    watched = zoo.train(compiled_zoo.ALL[case], variant, watch)
    assert watched.keys() == truth[0].keys()
    changed = _seen(truth, watched)
    while changed and len(truth) < _CHANCES:
        truth.append(zoo.train(compiled_zoo.ALL[case], variant))
        changed = _seen(truth, watched)
    assert not changed, f"{len(changed)} of {len(watched)} values changed: {changed[:8]}"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", zoo.CASES)
def test_levels_and_tasks(case: str, level: str, task: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level, task=task) as debugger:
        assert_same(case, "value_and_grad", debugger)
    for step in (0, 1):
        names = records(tmp_path / "dump", step)
        assert any(name.endswith("forward") or ".forward." in name for name in names)
        assert any("backward" in name for name in names), "nothing of the backward pass was looked at"
        validate(tmp_path / "dump" / f"step{step}" / "rank")


@pytest.mark.parametrize("variant", [v for v in zoo.VARIANTS if v != "value_and_grad"])
@pytest.mark.parametrize("case", zoo.CASES)
def test_ways_to_take_gradients(case: str, variant: str, tmp_path: Path) -> None:
    if (case, variant) == ("lstm", "half") and mindspore.__version__.startswith("2.7") and not _repeats():
        pytest.skip("MindSpore 2.7 computes other gradients of this network in every run, without Probe too")
    with opened(tmp_path, level="mix") as debugger:
        assert_same(case, variant, debugger)
    assert any("backward" in name for name in records(tmp_path / "dump", 1))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("case", "variant"), compiled_zoo.RUNS)
@pytest.mark.usefixtures("pynative")
@pytest.mark.filterwarnings("ignore:Probe recorded")
def test_what_is_compiled_or_computed_again(case: str, variant: str, level: str, tmp_path: Path) -> None:
    with opened(tmp_path, level=level) as debugger:
        assert_same(case, variant, debugger)
    for step in ("step0", "step1"):
        found = [path for path in (tmp_path / "dump").rglob("rank") if path.parent.name == step]
        names = [name for path in found for name in strict(path / "dump.json")["data"]]
        assert any("forward" in name for name in names), "nothing was looked at"
        if level != "L1" or not variant.startswith("graph_"):  # there the gradient is the inside of one call
            assert any("backward" in name for name in names), "nothing of the backward pass was looked at"
        for path in found:
            validate(path)
            assert strict(path / "report.json")["faults"] == []


def _repeats(runs: int = 20) -> bool:
    """Whether a half-precision `nn.LSTM` gives the same gradients twice. Its backward pass in 2.7.0 reads memory
    that is not its own (off by up to 0.9 in a gradient); LSTMCell ("recurrent") is right."""
    net = mindspore.nn.LSTM(8, 8, num_layers=2, batch_first=True).to_float(mindspore.float16)
    x = mindspore.Tensor(np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32))
    of = mindspore.grad(lambda x: (net(x)[0].astype(mindspore.float32) ** 2).sum(), 0)
    return len({of(x * 1).asnumpy().tobytes() for _ in range(runs)}) == 1


@pytest.mark.parametrize(
    "keys",
    [
        {"summary_mode": "md5"}, {"summary_mode": "xor"}, {"task": "structure"}, {"extra_info": False},
        {"task": "tensor", "async_dump": True}, {"precision": "high"}, {"list": ["Dense"]},
        {"task": "tensor", "data_mode": ["backward"]}, {"views": True},
    ],
    ids=str,
)  # fmt: skip
def test_options(keys: dict[str, Any], tmp_path: Path) -> None:
    with opened(tmp_path, **{"level": "mix", **keys}) as debugger:
        assert_same("gpt", "value_and_grad", debugger)


@pytest.mark.parametrize("case", ["gpt", "bprop", "residual"])
def test_the_losses_and_gradients_in_the_dump_are_those_of_the_run(case: str, tmp_path: Path) -> None:
    with opened(tmp_path, level="L0", task="tensor") as debugger:
        trace = zoo.train(zoo.CASES[case], "value_and_grad", debugger)
    data = records(tmp_path / "dump")
    dumped = [
        load(tmp_path / "dump", leaf)
        for name, record in data.items()
        if name.endswith(".parameters_grad")
        for leaf in leaves(record)
    ]
    grads = [value for name, value in trace.items() if name.startswith("0.grad.")]
    for grad in grads:
        if grad.any():
            assert any(np.array_equal(grad, d) for d in dumped), f"no record has a gradient of {grad.shape}"
