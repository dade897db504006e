"""Messages of graphs through files (the way of Ascend): what TensorDump names and writes, and what is made of it.

TensorDump has no graph kernel on the CPU. In PyNative it has: there its real files are collected. In graphs a
stand-in writes the same files through a host callback, so that all the rest is what Ascend would run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from graph_nets import Jitted, Net, batch, build  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402
from mindspore.ops import operations as P  # noqa: E402
from mindspore_dumping import construct, opened, records, report  # noqa: E402
from probe_format.tensors.narrow_floats import widen  # noqa: E402
from probe_mindspore.graph import host_callback  # noqa: E402
from probe_mindspore.graph.file_messages import CallCounter, FileCall, Spool  # noqa: E402
from probe_mindspore.graph.host_callback import FIRST, HostCall, Message  # noqa: E402
from probe_mindspore.graph.routes import Route, by_callbacks, by_files  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


@pytest.fixture
def faults() -> Iterator[list[str]]:
    found: list[str] = []
    host_callback.on_fault.append(note := lambda error: found.append(f"{type(error).__name__}: {error}"))
    yield found
    host_callback.on_fault.remove(note)


class Real(nn.Cell):
    """MindSpore's operator, as PyNative calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.dump = P.TensorDump()

    def construct(self, path, tensor):
        self.dump(path, tensor)
        return tensor


class StandIn(nn.Cell):
    """Writes what TensorDump would, from inside a graph of the CPU."""

    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.call = HostCall(self.write)

    def write(self, message: Message) -> None:
        path, tensor = message.value
        data = widen(tensor.data, tensor.narrow) if tensor.narrow else tensor.data
        file = Path(f"{path}_{tensor.dtype.lower()}_{next(self.numbers)}.npy")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, data)

    def construct(self, path, tensor):
        return self.call((path, tensor))


def messages(folder: Path) -> tuple[Any, list[Any], Spool]:
    """(a call that takes a token, what arrived, the spool)."""
    got: list[Any] = []

    def take(message: Message) -> int:
        got.append((message.token, message.value, message.extra, message.place))
        return 70 + len(got)

    folder.mkdir()
    return take, got, Spool(folder)


def test_real_files_of_every_dtype_come_back_as_they_were(tmp_path: Path, faults: list[str]) -> None:
    take, got, spool = messages(tmp_path / "s")
    call = FileCall(spool.folder, Real(), take)
    values = np.array([[0, 1, 2], [3, 0, 1]])
    names = (
        "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ complex64 bfloat16"
    )
    sent = [Tensor(values.astype(np.float32)).astype(getattr(ms, name)) for name in names.split()]
    sent += [Tensor(np.float64(0.1)), Tensor(2.5, ms.bfloat16), Tensor(np.zeros((0, 3), np.float32))]
    call({"a": tuple(sent), "n": 3}, FIRST, 5, 6)
    ms.common.api._pynative_executor.sync()
    written = sorted(p.name for p in spool.folder.iterdir())
    assert [n for n in written if "_bfloat16_" in n] and len(written) == len(sent)  # no empty one; an end
    assert spool.collect() == 1 and not list(spool.folder.iterdir()) and faults == []
    ((token, value, extra, place),) = got
    assert (token, extra, place, value["n"]) == (0, 5, 6, 3)
    for tensor, seen in zip(sent, value["a"], strict=True):
        assert (seen.dtype, seen.shape) == (str(tensor.dtype), list(tensor.shape))
        data = widen(seen.data, seen.narrow) if seen.narrow else seen.data
        wide = tensor.astype(ms.float32) if seen.narrow else tensor
        assert data.tobytes() == wide.asnumpy().tobytes(), seen.dtype


def test_calls_have_tokens_of_their_own_in_the_order_of_the_run(tmp_path: Path, faults: list[str]) -> None:
    take, got, spool = messages(tmp_path / "s")
    counter = CallCounter()
    enter = FileCall(spool.folder, Real(), take, counter=counter)
    leave = FileCall(spool.folder, Real(), take)
    one, two = enter(batch()), enter(batch(2))
    leave(batch(), two)
    leave((), one)
    ms.common.api._pynative_executor.sync()
    assert spool.collect() == 4
    assert [token for token, *_ in got] == [0, 0, 72, 71] and faults == []


def test_what_is_not_whole_is_a_fault_and_the_rest_is_delivered(tmp_path: Path, faults: list[str]) -> None:
    take, got, spool = messages(tmp_path / "s")
    call = FileCall(spool.folder, Real(), take)
    for place in range(4):
        call((batch(), batch(2)), FIRST, 0, place)
    ms.common.api._pynative_executor.sync()
    files = sorted(spool.folder.iterdir(), key=lambda p: int(p.stem.rpartition("_")[2]))
    assert len(files) == 12
    files[0].unlink()  # the first message has lost a tensor
    files[4].write_bytes(files[4].read_bytes()[:40])  # the second one is torn
    files[11].unlink()  # the last one has no end
    (spool.folder / "notes.txt").write_text("somebody's")
    spool.collect()
    assert [place for *_, place in got if len(got)][-1] == 2
    whole = [place for _, value, _, place in got if np.array_equal(value[1].data, batch(2).asnumpy())]
    assert whole == [2]
    assert len(faults) >= 3 and any("without its end" in text for text in faults)
    assert [p.name for p in spool.folder.iterdir()] == ["notes.txt"]


def test_a_number_given_twice_is_not_believed(tmp_path: Path, faults: list[str]) -> None:
    take, got, spool = messages(tmp_path / "s")
    for _ in range(2):  # each counts from one
        FileCall(spool.folder, Real(), take, counter=CallCounter())(batch())
    ms.common.api._pynative_executor.sync()
    spool.collect()
    assert len(got) == 1 and "to two calls" in faults[0]


def bits(net: Any) -> list[bytes]:
    loss, weights = ms.value_and_grad(net, None, net.trainable_params())(batch())
    return [loss.asnumpy().tobytes(), *(w.asnumpy().tobytes() for w in weights)]


def _holds(record: Any, other: Any) -> bool:
    """The same, or more: with files the compiler keeps gradients that nobody needs, with callbacks it drops them."""
    if isinstance(other, dict) and isinstance(record, dict):
        return record.keys() == other.keys() and all(_holds(record[k], v) for k, v in other.items())
    if isinstance(other, list) and isinstance(record, list):
        return len(record) == len(other) and all(map(_holds, record, other))
    return other is None or bool(record == other)


def dumped(folder: Path, net: Any, route: Route, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bits of a dumped step whose graphs tell by this route."""
    monkeypatch.setattr(import_module("probe_mindspore.session.step"), "route_for", lambda where: route)
    with opened(folder, level="L0") as debugger:
        debugger.start(net)
        seen = bits(net)
        debugger.stop()
        debugger.step()
    return seen


@pytest.mark.parametrize("kind", [Net, Jitted], ids=["graph mode", "jit"])
def test_files_give_the_records_that_callbacks_give(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is Net:
        ms.set_context(mode=ms.GRAPH_MODE)
    below = "" if kind is Net else "graph"
    without = bits(build(kind))
    found: list[Any] = []
    stand_in = by_files(tmp_path / "spool", StandIn())
    for way, route in (("callbacks", by_callbacks()), ("files", stand_in)):
        net = build(kind)
        found.append(dumped(tmp_path / way, net, route, monkeypatch))
        dump = tmp_path / way / "dump" / below
        assert report(dump)["faults"] == [] and report(dump)["not_seen"] == []
        found.append((records(dump), construct(dump)))
    seen, callbacks, also_seen, files = found
    assert seen == also_seen == without
    assert len([name for name in files[0] if "backward" in name]) == 16
    assert files[0].keys() == callbacks[0].keys()
    differs = [name for name, record in callbacks[0].items() if not _holds(files[0][name], record)]
    assert differs == []
    assert files[1] == callbacks[1]
    assert not list((tmp_path / "spool").iterdir())


def test_without_a_kernel_the_run_goes_on_and_the_report_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user of a device sees whose graphs cannot even compile TensorDump: here the CPU's."""
    ms.set_context(mode=ms.GRAPH_MODE)
    without = bits(build())
    assert dumped(tmp_path, build(), by_files(tmp_path / "spool"), monkeypatch) == without
    whys = [item["why"] for item in report(tmp_path / "dump")["not_seen"]]
    assert any("TensorDump" in why and "it ran without" in why for why in whys)
