"""Every misuse gets one clear message; the run goes on, and what was dumped before is as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_misuse import *  # noqa: F403  the tests that both frameworks have
from hostile import HOSTILE, Raises
from messages import told
from mindspore import Tensor, nn, ops
from mindspore_dumping import capture, opened, records, report, write_config
from probe_format.errors import ConfigError, ProbeError, UsageError
from probe_mindspore import PrecisionDebugger, ProbeStep
from probe_mindspore.tensors.leaf import TensorLeaf
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.recorder import Recorder
from probe_runtime.session.step import DumpingStep

X = Tensor(np.ones((2, 3), np.float32))


def still_trains() -> None:
    """The user's MindSpore is whole: functions are the originals and a step gives gradients."""
    assert not hasattr(ops.gelu, "__wrapped__") and not hasattr(nn.Cell.__call__, "__wrapped__")
    model = nn.Dense(3, 2)
    grads = ms.grad(lambda x: model(x).sum(), None, model.trainable_params())(X)
    assert len(grads) == 2


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    still_trains()


def test_every_problem_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(
            str(write_config(tmp_path, level="L9", step=["3-1"], summary_mode="sha", colour="red"))
        )
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    "model", ["model", [], [nn.ReLU(), 3], ops.ReLU()], ids=["str", "empty", "mixed", "op"]
)
def test_a_model_that_is_none(model: Any, tmp_path: Path) -> None:
    with opened(tmp_path, level="L0") as debugger:
        with pytest.raises(UsageError, match=r"mindspore\.nn\.Cell"):
            debugger.start(model)
        net = nn.SequentialCell(nn.Dense(3, 3))
        debugger.start(net)  # the right one is taken after that
        net(X)
        debugger.stop()
        debugger.step()
    assert "Cell.0.Dense.forward.0" in records(tmp_path / "dump")


def test_token_range_without_a_model_and_backwards(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="token_range"):
            debugger.start(token_range=[0, 1])
        with pytest.raises(UsageError, match="3"):
            debugger.start(nn.ReLU(), token_range=[3, 1])


def test_stop_without_start_and_step_without_stop(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with told("stop", "start"):
            debugger.stop()
        debugger.start()
        ops.gelu(X)
        with told("step", "stop"):
            debugger.step()
        debugger.start()
        ops.relu(X)
        debugger.stop()
        debugger.step()
    assert list(records(tmp_path / "dump", 0)) == ["Functional.gelu.0.forward"]
    assert list(records(tmp_path / "dump", 1)) == ["Functional.relu.0.forward"]


def test_class_calls_without_an_instance() -> None:
    with pytest.raises(UsageError, match=r"PrecisionDebugger\("):
        PrecisionDebugger.start()


def test_a_closed_debugger(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        pass
    with pytest.raises(UsageError, match="closed"):
        debugger.start()


def test_set_init_step_inside_the_loop_or_with_nonsense(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger:
        with pytest.raises(UsageError, match="-3"):
            debugger.set_init_step(-3)
        debugger.start()
        with pytest.raises(UsageError, match="before the first start"):
            debugger.set_init_step(4)
        debugger.stop()
        debugger.step()


def test_ranks_in_a_single_process(tmp_path: Path) -> None:
    with told("rank"):
        data = capture(tmp_path / "0", lambda: ops.gelu(X), level="L1", rank=[0])
    assert list(data) == ["Functional.gelu.0.forward"]
    with told("rank", "7", "msrun"), opened(tmp_path / "7", level="L1", rank=[7]) as debugger:
        debugger.start()
        ops.gelu(X)
        debugger.stop()
        debugger.step()
    assert not list((tmp_path / "7" / "dump").rglob("dump.json"))


def test_a_dump_path_that_was_used(tmp_path: Path) -> None:
    capture(tmp_path, lambda: ops.gelu(X), level="L1", task="tensor")
    before = {p: p.read_bytes() for p in (tmp_path / "dump").rglob("*") if p.is_file()}
    with pytest.raises(ProbeError, match="overwrite"):
        capture(tmp_path, lambda: ops.gelu(X), level="L1")
    assert {p: p.read_bytes() for p in (tmp_path / "dump").rglob("*") if p.is_file()} == before
    data = capture(tmp_path, lambda: ops.relu(X), level="L1", overwrite=True)
    assert list(data) == ["Functional.relu.0.forward"] and not list((tmp_path / "dump").rglob("*.npy"))


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_dump_of_one_of_the_two_modes_counts_as_used(mode: str, tmp_path: Path) -> None:
    earlier = tmp_path / "dump" / mode / "step0" / "rank"
    earlier.mkdir(parents=True)
    (earlier / "dump.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds a dump"):
        PrecisionDebugger(str(write_config(tmp_path, level="L1")))


def test_an_unwritable_dump_path(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    with pytest.raises(ProbeError, match=str(blocked)):
        PrecisionDebugger(str(write_config(tmp_path, level="L1", dump=blocked / "dump")))
    assert blocked.read_text() == "mine"


def test_a_callback_without_a_debugger() -> None:
    with pytest.raises(UsageError, match="PrecisionDebugger"):
        ProbeStep("config.json")  # type: ignore[arg-type]


def test_save_at_another_level_is_told_once_and_gives_the_value_back(tmp_path: Path) -> None:
    with opened(tmp_path, level="L1") as debugger, told("save", "debug"):
        assert debugger.save(X, "x") is X
        debugger.save(X, "x")


def test_kernels_without_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "probe_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "probe_kernel", None)
    with pytest.raises(ConfigError, match="pip install probe-kernel"):
        PrecisionDebugger(str(write_config(tmp_path, level="L2")))


# ---------------- faults of ours
def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("broken on purpose")


@pytest.mark.parametrize("where", ["resume", "write_files", "end"])
def test_a_fault_in_start_stop_or_step(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.SequentialCell(nn.Dense(3, 2))
    with opened(tmp_path, level="mix") as debugger:
        with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="fault of its own"):
            patch.setattr(DumpingStep, where, broken)
            debugger.start(net)
            net(X)
            debugger.stop()
            debugger.step()
        debugger.start(net)
        net(X)
        debugger.stop()
        debugger.step()
    assert records(tmp_path / "dump", step=1)


@pytest.mark.parametrize(
    ("part", "where"), [(Recorder, "_enter"), (Recorder, "_exit"), (BackwardRecords, "_described")]
)
def test_a_fault_in_a_tap_is_counted_and_the_tap_goes_off(
    part: type, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, where, broken)
    with opened(tmp_path, level="L1", max_faults=3) as debugger, pytest.warns(RuntimeWarning, match="faults"):
        debugger.start()
        for _ in range(5):
            grad = ms.grad(lambda x: ops.sin(x).sum())(X)
        debugger.stop()
        debugger.step()
    assert np.allclose(grad.asnumpy(), np.cos(X.asnumpy()))
    said = report(tmp_path / "dump")
    assert sum(f["count"] for f in said["faults"]) >= 3
    assert "broken on purpose" in (tmp_path / "dump/step0/rank/dump_error_info.log").read_text()


def test_a_fault_in_one_tensor_costs_that_value_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TensorLeaf.tensor

    def some(self: TensorLeaf, slot: Any, t: Any, path: Any) -> Any:
        if t.shape == (7,):
            raise KeyError("broken on purpose")
        return whole(self, slot, t, path)

    monkeypatch.setattr(TensorLeaf, "tensor", some)
    seven = Tensor(np.ones(7, np.float32))
    data = capture(tmp_path, lambda: ops.tensor_dot(seven, seven, 1), level="L1")
    (record,) = data.values()
    assert "broken on purpose" in record["input_args"][0]["unsupported"]
    assert record["output"][0]["Max"] == 7.0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}


KILLED = """
import os, sys
import mindspore as ms
from mindspore import nn
from probe_mindspore import PrecisionDebugger
net = nn.SequentialCell(nn.Dense(3, 3), nn.ReLU())
d = PrecisionDebugger(sys.argv[1])
d.start(net)
net(ms.ops.ones((2, 3)))
os.kill(os.getpid(), 9)
"""


def test_a_killed_run_is_readable_and_not_overwritten(tmp_path: Path) -> None:
    import probe_format

    config = write_config(tmp_path, level="mix")
    done = subprocess.run([sys.executable, "-c", KILLED, str(config)], env=environment())
    assert done.returncode == -signal.SIGKILL
    names = [r.name for step in probe_format.open(tmp_path / "dump").steps for r in step.ranks[0].records]
    assert "Cell.0.Dense.forward.0" in names and "Cell.1.ReLU.forward.0" in names
    with pytest.raises(ProbeError, match="already holds a dump"):
        PrecisionDebugger(str(config))


# ---------------- settings as keywords
# ---------------- the wrong thing in the wrong place
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_no_argument_raises_into_the_run(level: str, tmp_path: Path, pynative: None) -> None:
    class Sink(nn.Cell):
        def construct(self, value: Any, x: Tensor, kw: Any = None) -> Any:
            return [value, x * 2, kw]

    net = nn.SequentialCell([nn.ReLU()])
    net.insert_child_to_cell("sink", Sink())
    # What MindSpore itself cannot pass to a Cell is left out: it raises without Probe, too.
    taken = {}
    for name, value in HOSTILE.items():
        try:
            net.sink(value, X, kw=value)
            net.sink([value], X, kw={"a": value})
        except BaseException:
            continue
        taken[name] = value
    assert len(taken) > 15
    with opened(tmp_path, level=level, task="tensor") as debugger:
        debugger.start(net)
        for value in taken.values():
            net.sink(value, X, kw=value)
            net.sink([value], X, kw={"a": value})
        debugger.stop()
        debugger.step()
    data = records(tmp_path / "dump")
    calls = [name for name in data if name.startswith("Cell.sink.Sink.forward")]
    assert len(calls) == 2 * len(taken)
    assert all(data[name]["input_args"][1]["Norm"] for name in calls)
    assert not report(tmp_path / "dump")["faults"]


@pytest.mark.parametrize("times", [1, 5])
def test_an_exception_that_cannot_say_what_it_is_is_the_users_still(
    times: int, tmp_path: Path, pynative: None
) -> None:
    class Fails(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            raise Raises

    net = nn.SequentialCell(Fails())
    with opened(tmp_path, level="mix", max_faults=3) as debugger:
        debugger.start(net)
        for _ in range(times):
            with pytest.raises(Raises):
                net(X)
        debugger.stop()
        debugger.step()
    assert records(tmp_path / "dump")["Cell.0.Fails.forward.0"]["raised"].startswith("Raises: ")
    assert not report(tmp_path / "dump")["faults"]
