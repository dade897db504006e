"""Graphs at the edges, as a user of PrecisionDebugger meets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

ms = pytest.importorskip("mindspore")

from bytecode import needs_bytecode  # noqa: E402
from graph_nets import batch, build  # noqa: E402
from mindspore import Parameter, Tensor, nn  # noqa: E402
from mindspore_dumping import collected, opened, records, report, trained  # noqa: E402
from mindspore_launching import FORKS  # noqa: E402
from probe_format.cli.main import main as probe  # noqa: E402
from probe_mindspore.graph.taps import BYTECODE  # noqa: E402
from probe_mindspore.hooks.modules import is_bytecode  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


class Plain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Tanh()
        self.w = Parameter(Tensor([1.0, 2.0, 3.0]), name="w")

    def construct(self, x):
        return self.act(x * self.w)


class Jitted(Plain):
    @ms.jit
    def construct(self, x):
        return self.act(x * self.w)


class Bytecode(Plain):
    @ms.jit(capture_mode="bytecode")
    def construct(self, x):
        return self.act(x * self.w)


class Net(nn.Cell):
    def __init__(self, kind: type[nn.Cell]) -> None:
        super().__init__()
        self.a = kind()

    def construct(self, x):
        return self.a(x).sum()


def second_order(net: Any) -> list[bytes]:
    return [ms.grad(lambda x: ms.grad(net)(x).sum())(batch()).asnumpy().tobytes()]


def dump(folder: Path, net: Any, work: Any, level: str = "L0", **more: Any) -> Any:
    with collected(folder, net, level=level, **more):
        return work()


@needs_bytecode
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_bytecode_runs_as_it_is_and_the_report_says_why_it_is_dark(level: str, tmp_path: Path) -> None:
    net = build(lambda: Net(Bytecode))
    assert is_bytecode(net.a) and not is_bytecode(Jitted())
    without = trained(net, batch())
    assert dump(tmp_path, net, lambda: trained(net, batch()), level) == without
    told = {item["what"]: item["why"] for item in report(tmp_path / "dump")["not_seen"]}
    assert told["inside a"] == BYTECODE
    assert "Cell.a.act.Tanh" in told
    assert {"Cell.a.Bytecode.forward.0", "Cell.a.Bytecode.backward.0"} <= set(records(tmp_path / "dump"))


def test_gradients_of_gradients_pass_by_the_taps(tmp_path: Path) -> None:
    net = build(lambda: Net(Jitted))
    without = second_order(net)
    assert dump(tmp_path, net, lambda: second_order(net)) == without
    assert "Cell.a.act.Tanh.forward.0" in records(tmp_path / "dump" / "graph")


def test_a_gradient_of_a_parameter_is_recorded_once(tmp_path: Path) -> None:
    net = build(lambda: Net(Jitted))
    dump(tmp_path, net, lambda: trained(net, batch()))
    found = [name for name in records(tmp_path / "dump" / "graph") if "parameters_grad" in name]
    assert found == ["Cell.a.Jitted.parameters_grad"]


def test_a_graph_that_still_runs_at_stop_is_waited_for(tmp_path: Path) -> None:
    """Nobody looks at the result before stop()."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(lambda: Net(Plain))
    dump(tmp_path, net, lambda: ms.value_and_grad(net, None, net.trainable_params())(batch()))
    names = set(records(tmp_path / "dump"))
    assert {
        "Cell.a.act.Tanh.forward.0",
        "Cell.a.act.Tanh.backward.0",
        "Cell.a.Plain.parameters_grad",
    } <= names


def test_the_loop_of_msprobe_s_guide_runs_without_a_notice(tmp_path: Path) -> None:
    """GRAPH_MODE: start and step in each iteration, and no stop."""
    ms.set_context(mode=ms.GRAPH_MODE)
    model = build(lambda: Net(Plain))
    with warnings.catch_warnings(record=True) as caught, opened(tmp_path, level="L0") as debugger:
        warnings.simplefilter("always")
        for _ in range(2):
            debugger.start(model)
            ms.grad(model)(batch())
            debugger.step()
    assert not [said for w in caught if "Probe" in (said := str(w.message))]
    for step in (0, 1):
        assert "Cell.a.act.Tanh.backward.0" in records(tmp_path / "dump", step)


@pytest.mark.parametrize("graph", [False, True], ids=["jit", "graph mode"])
def test_token_range_counts_the_calls_of_graphs(graph: bool, tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    net = build(lambda: Net(Plain if graph else Jitted))
    dump(tmp_path, net, lambda: [net(batch(i + 1)) for i in range(4)], token_range=[1, 2])
    found = records(tmp_path / "dump" / ("" if graph else "graph"))
    rows = [r["input_args"][0]["shape"][0] for name, r in found.items() if "Tanh.forward" in name]
    assert rows == [2, 3]


def test_a_shape_that_only_the_run_knows(tmp_path: Path) -> None:
    net = build(lambda: Net(Jitted))
    net.a.set_inputs(Tensor(shape=[None, 3], dtype=ms.float32))
    without = trained(net, batch())
    assert dump(tmp_path, net, lambda: trained(net, batch())) == without
    found = report(tmp_path / "dump" / "graph")
    assert found["faults"] == []
    (why,) = {i["why"] for i in found["not_seen"] if i["what"].startswith("tensors of")}
    assert "only known when the graph runs" in why


def test_a_gradient_that_nobody_asked_for_is_none_and_not_lost(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(lambda: Net(Plain))
    dump(tmp_path, net, lambda: trained(net, batch()))
    found = records(tmp_path / "dump")["Cell.a.Plain.backward.0"]
    assert found["input"][0]["Norm"] and found["output"] == [None]


KILLED = """
import os, signal, sys
import mindspore as ms, numpy as np
from mindspore import Tensor, nn
from probe_mindspore import PrecisionDebugger
ms.set_context(mode=ms.GRAPH_MODE)
net = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())
x = Tensor(np.ones((2, 3), np.float32))
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="statistics", level="L0")
debugger.start(net)
for _ in range(3):
    net(x).asnumpy()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_ran_before_a_kill_can_be_read(tmp_path: Path) -> None:
    FORKS.run("-c", KILLED, str(tmp_path / "dump"), ends=-signal.SIGKILL)
    assert probe(["recover", str(tmp_path / "dump")]) == 0
    found = set(records(tmp_path / "dump"))
    assert {f"Cell.{c}.forward.{i}" for c in ("0.Dense", "1.Tanh") for i in range(3)} <= found


BROKEN = """
import gc, sys
from types import FunctionType
import mindspore as ms, numpy as np
from mindspore import Tensor, nn
from mindspore._c_expression import get_code_extra
import probe_mindspore
from probe_mindspore import PrecisionDebugger

class Inside(nn.Cell):
    def construct(self, x):
        print("a break", file=sys.stderr)
        return x * 2

net = nn.SequentialCell(Inside(), nn.Tanh())

@ms.jit(capture_mode="bytecode")
def run(x):
    y = net(x + 1)
    return y - 1

debugger = PrecisionDebugger(dump_path=sys.argv[1], level=sys.argv[2])
for _ in range(3):
    debugger.start(net)
    run(Tensor(np.ones((2, 2), np.float32))).asnumpy()
    debugger.stop()
    debugger.step()
ours = [f for f in gc.get_objects() if type(f) is FunctionType and "/probe_" in f.__code__.co_filename]
looked_at = [f for f in ours if get_code_extra(f) and get_code_extra(f)["stat"] != "NEVER_COMPILE"]
print(len(looked_at), sorted({f.__qualname__ for f in looked_at})[:5])
"""


@needs_bytecode
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_nothing_of_ours_is_captured_where_bytecode_breaks_a_graph(level: str, tmp_path: Path) -> None:
    # Not of FORKS: what was there before a fork is none of its collector's objects.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BROKEN, str(tmp_path / "dump"), level]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
