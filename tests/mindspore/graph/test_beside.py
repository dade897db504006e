"""What is compiled runs as it is: its bits, its records beside PyNative's, and what happens where a copy fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ms = pytest.importorskip("mindspore")

import numpy as np  # noqa: E402
from compiled_runs import DRAWN, RECOMPUTED, changed, folder_of, otherwise, uncopied  # noqa: E402
from graph_nets import batch, build  # noqa: E402
from graph_siblings import ALL, SAMPLE  # noqa: E402
from graphing import dumped  # noqa: E402
from mindspore import nn, ops  # noqa: E402
from mindspore.train.mind_ir_pb2 import ModelProto  # noqa: E402
from mindspore_dumping import bits, collected, records, report, trained  # noqa: E402
from mindspore_launching import FORKS  # noqa: E402
from probe_mindspore.graph import copied_graph, piece_gradients, save  # noqa: E402
from probe_mindspore.graph.mind_ir import MindIr, op_of  # noqa: E402
from probe_mindspore.graph.replay_plan import UNEXPORTED  # noqa: E402
from probe_mindspore.graph.replay_process import ReplayProcess  # noqa: E402
from probe_mindspore.hooks.autograd import GRAPH  # noqa: E402

pytestmark = [pytest.mark.usefixtures("pynative"), pytest.mark.filterwarnings("ignore:Probe")]

#: CI runs a sample; PROBE_SOAK=1 runs all networks, each with every part of the records alone too, a way of
#: training at a time (which of them, changes from network to network).
SOAK = os.environ.get("PROBE_SOAK") == "1"
NAMES = [name for name in ALL if SOAK or name in SAMPLE]
MODES: list[dict[str, Any]] = [
    {"task": "tensor"},
    *(
        {"task": "statistics", "data_mode": [mode]}
        for mode in ("forward", "backward", "input", "output")
        if SOAK
    ),
    *([{"task": "structure"}] if SOAK else []),
]
#: Ways of training beside that by value_and_grad; of a sample each network takes one.
OTHERS = ("graph_train_one_step", "jit")
#: Whose outputs beside the loss only this way of training takes.
ALSO = {"aux": "aux"}
#: Which writes to tensors in place: MindSpore itself has other gradients in a graph.
WRITES = ("inplace",)


#: What 2.7 compiles of the sample: branches, what is drawn, and a Cell that is called twice.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.once] * (n not in ("branches", "dropped", "twice"))) for n in NAMES],
)
def test_the_zoo_keeps_its_bits_and_has_the_records_of_pynative(name: str, tmp_path: Path) -> None:
    if name in ("recompute function", "viewed") and not GRAPH:
        pytest.skip(
            "MindSpore 2.7 compiles no mindspore.recompute, and has no kernel of mint.transpose on the CPU"
        )
    way = ALSO.get(name, "value_and_grad")
    others = () if name in ALSO else OTHERS if SOAK else (OTHERS[list(ALL).index(name) % len(OTHERS)],)
    variants = (f"graph_{way}", *others)
    assert changed(name, way, tmp_path / "pynative", task="tensor") == []
    eager = tmp_path / "pynative" / "dump"
    comparable = (
        name not in (*DRAWN, *RECOMPUTED, *WRITES) and not (eager / "graph").is_dir()
    )  # no jitted Cells of its own
    for turn, variant in enumerate(variants):
        for i, options in enumerate(MODES):
            if i and i % len(variants) != (turn + list(ALL).index(name)) % len(variants):
                continue
            path = tmp_path / f"{variant}{i}"
            assert changed(name, variant, path, **options) == [], (variant, options)
            folder = folder_of(path, variant)
            drawn_by_all = name in DRAWN and (name, variant) != ("dropped", "graph_value_and_grad")
            assert uncopied(folder) == [] or drawn_by_all
            if not i and comparable:
                assert otherwise(folder, eager) == [], variant


def test_the_zoo_is_large() -> None:
    assert len(ALL) >= 25 and set(SAMPLE) <= set(ALL)


class Plain(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Dense(3, 3), nn.Tanh()

    def construct(self, x):
        return self.act(self.a(x)).sum()


def evaluators() -> list[int]:
    """The processes of ours that evaluate graphs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
            if b"graph.evaluator" in words and int(parent) == os.getpid():
                found.append(int(entry.name))
    return found


def hang(number: int) -> None:
    os.kill(number, signal.SIGSTOP)


def end(number: int) -> None:
    """As the system ends what takes too much memory."""
    os.kill(number, signal.SIGKILL)


class Looping(Plain):
    """A branch and a loop that only the run decides."""

    def construct(self, x):
        if x.sum() > 100:  # noqa: SIM108 - as people write it
            x = self.act(x)
        else:
            x = self.a(x)
        i = ms.Tensor(0, ms.int32)
        while i < 2:
            x = self.act(self.a(x))
            i = i + 1
        return x.sum()


@pytest.mark.once
@pytest.mark.parametrize(("kind", "happens"), [(Plain, hang), (Looping, hang), (Looping, end)])
def test_what_happens_to_a_copy_does_not_happen_to_the_run(
    happens: Callable[[int], None], kind: type[nn.Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it where a graph has branches and loops."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(kind)
    without = trained(net, batch())
    with dumped(tmp_path / "first", net) as dump:
        assert trained(net, batch()) == without
    records = len(dump.data)
    assert dump.unseen == {} and records >= 5
    real = ReplayProcess.end

    (process,) = evaluators()
    hang(process)  # so that it does not answer before it is struck

    def struck(self: Any, *args: Any) -> Any:
        happens(process)
        return real(self, *args)

    with monkeypatch.context() as patches:
        patches.setattr(copied_graph, "PATIENCE", 1.0)
        patches.setattr(ReplayProcess, "end", struck)
        with pytest.warns(RuntimeWarning, match="its copy failed"), dumped(tmp_path / "second", net) as dump:
            assert trained(net, batch()) == without
    (why,) = [why for what, why in dump.unseen.items() if what.startswith("inside the graph of")]
    assert "it ran as it is, without records" in why
    assert dump.data == {} and dump.report["faults"] == []
    other = build(kind)
    with dumped(tmp_path / "third", other) as dump:  # by a new process
        assert trained(other, batch()) == without
    assert len(dump.data) == records


def test_an_exception_in_a_copy_does_not_reach_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Plain)
    without = trained(net, batch())

    def broken(*args: Any) -> Any:
        raise MemoryError("ours")

    monkeypatch.setattr(copied_graph, "replay_plan", broken)
    with pytest.warns(RuntimeWarning, match="ours"), dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    assert any("ours" in why for why in dump.unseen.values()) and dump.data == {}


def uncompilable(t):
    try:
        return t
    finally:
        pass


def test_a_piece_whose_gradients_do_not_compile_leaves_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MindSpore drops what PyNative has recorded where a jitted function fails to compile; 2.7 records no more."""
    net = build(Plain)

    @ms.jit
    def loss(x, n):
        return net(x) * n

    def run_jitted() -> list[bytes]:
        n = ms.Tensor(2, ms.int32)
        taking = ms.value_and_grad(
            lambda x: ops.exp(loss(x * 1.0, n) * 0.1) + net.a(x).sum(), None, net.trainable_params()
        )
        return bits(taking(batch()))

    without = run_jitted()
    monkeypatch.setattr(piece_gradients, "F", SimpleNamespace(stop_gradient=uncompilable))
    with dumped(tmp_path, net) as dump:
        assert run_jitted() == without
    assert "Cell.a.Dense.forward.0" in dump.data and "Cell.a.Dense.backward.0" not in dump.data
    assert any(what.startswith("gradients inside the graph of") for what in dump.unseen)


def test_what_is_computed_again_reads_the_weights_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update writes them in the same graph, and nothing but a state orders the two."""
    plans = []
    real = copied_graph.replay_plan

    def otherwise_signed(run: bytes, *args: Any) -> Any:
        """As if the run computed a value in another way: what comes of it is computed by the copy's own nodes."""
        model = ModelProto.FromString(run)
        for node in model.graph.node:
            if op_of(node) == "Tanh":
                node.attribute.add(name="other")
        plans.append(real(model.SerializeToString(), *args))
        return plans[-1]

    def dump(path: Path) -> Any:
        net = build(lambda: nn.SequentialCell(nn.Dense(3, 3), nn.Tanh(), nn.Dense(3, 3)))
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.5))
        with dumped(path, net) as found:
            step(batch(), batch() * 2.0)
        return found

    ms.set_context(mode=ms.GRAPH_MODE)
    first = dump(tmp_path / "first")
    monkeypatch.setattr(copied_graph, "replay_plan", otherwise_signed)
    second = dump(tmp_path / "second")
    (entry,) = second.report["graphs"].values()
    assert "Cell.2.Dense" in entry["copied"] and not entry["differs"]
    copy = MindIr(plans[0].model)
    ordered = [node for node in copy.nodes.values() if copy.state_of(node) is None]
    assert [
        op_of(node) for node in ordered if copy.written & {copy.parameters.get(i) for i in node.input}
    ] == []
    assert first.data.keys() == second.data.keys()
    for one, other in zip(_arrays(first), _arrays(second), strict=True):
        assert np.array_equal(one, other)


def _arrays(dump: Any) -> list[Any]:
    return [np.load(path) for path in sorted((dump.directory / "dump_tensor_data").iterdir())]


class Written(Plain):
    """Writes in place where the output of a Cell lies."""

    def construct(self, x):
        h = self.a(x)
        h = h.add_(1.0)
        return self.act(h).sum()


def test_a_value_is_that_before_a_write_in_place(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Written)
    with dumped(tmp_path, net) as dump:
        trained(net, batch())
    call, later = dump.data["Cell.a.Dense.forward.0"], dump.data["Cell.act.Tanh.forward.0"]
    x = dump.array(call["input_args"][0]).astype(np.float64)
    expected = x @ net.a.weight.asnumpy().T + net.a.bias.asnumpy()
    assert np.allclose(dump.array(call["output"][0]), expected, 1e-4, 1e-5)
    assert np.allclose(dump.array(later["output"][0]), np.tanh(expected + 1.0), 1e-4, 1e-5)


class Nests(nn.Cell):
    """Takes a nest and a number, and gives a nest."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Dense(3, 3), nn.Tanh()

    def construct(self, pair, n):
        h = self.act(self.a(pair[0])) * n
        return h, (self.a(pair[1][0]) * h, n)


@pytest.mark.parametrize("way", ["jit", "graph"])
def test_nests_and_numbers_go_in_and_out(way: str, tmp_path: Path) -> None:
    def gone_through(call: Callable[..., Any], net: Any) -> list[bytes]:
        def loss(x, y):
            h, (g, times) = call(ms.mutable((x * 2.0, (y,))), n)
            return (h * g).sum() * times

        # with a mutable number MindSpore mixes the gradients of a jitted piece up
        n = 3 if way == "jit" else ms.mutable(3)
        return bits(ms.value_and_grad(loss, (0, 1), net.trainable_params())(batch(), batch() * 2.0))

    def recorded(path: Path, call: Callable[[Any], Callable[..., Any]]) -> list[bytes]:
        net = build(Nests)
        with collected(path, net, level="L0", task="tensor"):
            return gone_through(call(net), net)

    def jitted(net: Any) -> Callable[..., Any]:
        @ms.jit
        def call(pair, n):
            return net(pair, n)

        return call

    recorded(tmp_path / "pynative", lambda net: net)
    net = build(Nests)
    if way == "graph":
        ms.set_context(mode=ms.GRAPH_MODE)
    made = jitted if way == "jit" else lambda net: net
    assert recorded(tmp_path / way, made) == gone_through(made(net), net)
    folder = tmp_path / way / "dump"
    folder = folder / "graph" if way == "jit" else folder
    assert uncopied(folder, 1) == [] and otherwise(folder, tmp_path / "pynative" / "dump") == []


def test_a_nest_is_an_argument_of_a_graph(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Nests)
    with dumped(tmp_path, net) as dump:
        net(ms.mutable((batch(), (batch(),))), ms.mutable(3))
    assert dump.unseen == {} and len(dump.data) == 3


class Choosing(Plain):
    """A branch in a loop: MindSpore exports this graph, and not the one with taps (2.10)."""

    def construct(self, x):
        i = ms.Tensor(0, ms.int32)
        while i < 2:
            if x.sum() > 0:  # noqa: SIM108 - as people write it
                x = self.a(x)
            else:
                x = self.act(x) + 1.0
            i = i + 1
        return x.sum()


def test_a_graph_that_mindspore_does_not_export_runs_as_it_is(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Choosing)
    without = trained(net, batch())
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    if dump.data:
        assert all(entry["runs"] == entry["equal"] == 1 for entry in dump.report["graphs"].values())
    else:
        assert all(UNEXPORTED in dump.unseen[cell] for cell in ("Cell.a.Dense", "Cell.act.Tanh"))


class Saying(nn.Cell):
    """Prints in a branch that only the run decides."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(3, 3)

    def construct(self, x):
        if x.sum() > 100:
            print("far")
        else:
            print("near")
        return self.a(x).sum()


class Printing(Plain):
    def construct(self, x):
        ops.print_("once", x.sum())
        return self.act(self.a(x)).sum()


def test_what_prints_prints_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Printing)
    without = trained(net, batch())
    ms.runtime.synchronize()
    capfd.readouterr()
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    ms.runtime.synchronize()
    assert capfd.readouterr().out.count("once") == 1
    assert len(dump.data) == 5 and dump.unseen == {}


@pytest.mark.parametrize("op", ["AllReduce", "Send", "GetNext", "PyExecute"])
def test_what_sends_or_takes_from_a_queue_is_not_in_a_copy(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the activation were such an operator, in the run's graph and in that with taps."""
    plans = []
    real = copied_graph.replay_plan

    def acting(raw: bytes) -> bytes:
        model = ModelProto.FromString(raw)
        for node in model.graph.node:
            if op_of(node) == "Tanh":
                node.op_type = op
        return bytes(model.SerializeToString())

    def planned(run: bytes, tapped: Callable[[], bytes], wanted: Any) -> Any:
        plans.append(real(acting(run), lambda: acting(tapped()), wanted))
        return plans[-1]

    monkeypatch.setattr(copied_graph, "replay_plan", planned)
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Plain)
    without = trained(net, batch())
    with dumped(tmp_path, net) as dump:
        assert trained(net, batch()) == without
    (plan,) = plans
    assert op not in {op_of(node) for node in MindIr(plan.model).nodes.values()} and not plan.whole
    assert dump.array(dump.data["Cell.a.Dense.forward.0"]["output"][0]).shape == (4, 3)
    sent = dump.data["Cell.act.Tanh.forward.0"]["output"][0]
    assert "data_name" not in sent


class Saving(Plain):
    folder = ""

    def construct(self, x):
        h = save.save_grad(self.folder, "h", self.a(x))
        return ops.depend(self.act(h).sum(), save.save(self.folder, "x", (x, h)))


def test_what_saves_saves_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Saving)
    net.folder = str(tmp_path / "saved")
    with dumped(tmp_path, net) as dump:
        trained(net, batch())
    ms.runtime.synchronize()
    assert len(list((tmp_path / "saved").rglob("*.npy"))) == 3
    assert "is not saved" not in caplog.text
    assert len(dump.data) == 5 and dump.unseen == {}


SLOW = """
import sys, time
import mindspore as ms
from mindspore import Tensor, nn, ops
from probe_mindspore import PrecisionDebugger
from probe_mindspore.graph import host_callback, save

deliver = host_callback.deliver
host_callback.deliver = lambda *about: (time.sleep(0.3), deliver(*about))[1]


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = nn.Dense(3, 3)

    def construct(self, x):
        h = self.a(x)
        return ops.depend(h.sum(), save.save(sys.argv[1] + "/saved", "h", h))


ms.set_context(mode=ms.GRAPH_MODE)
net = Net()
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L0", task="statistics")
debugger.start(net)
loss = net(ops.ones((2, 3), ms.float32))
debugger.stop()
debugger.step()
print(float(loss.asnumpy()))
"""


def test_a_host_function_that_still_runs_holds_nothing_up(tmp_path: Path) -> None:
    """MindSpore holds the lock of Python while it waits for runs before it drops a graph: here, for ever."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    FORKS.run(str(script), str(tmp_path))
    assert (tmp_path / "step0").is_dir() and len(list((tmp_path / "saved").rglob("*.npy"))) == 1


@pytest.mark.parametrize("always", [False, True])
def test_a_graph_without_a_copy_runs_as_it_is_unless_taps_are_wanted(always: bool, tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = build(Saying)
    without = trained(net, batch())
    options = {"graph_taps": "always"} if always else {}
    with collected(tmp_path, net, level="L0", **options):
        assert trained(net, batch()) == without
    assert bool(records(tmp_path / "dump")) == always
    told = " ".join(entry["why"] for entry in report(tmp_path / "dump")["not_seen"])
    assert ("last bits may be others" in told) == always and "branches or loops" in told
