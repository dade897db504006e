"""A fault of Probe's own never reaches the user's run."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from documents import objects, records, report
from framework import Framework
from hostile import HOSTILE, Leaves, Raises
from opening import capture, opened
from probe_format.journal import events
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.walk import Part
from probe_runtime.session.step import DumpingStep


def broken(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("broken on purpose")


@pytest.mark.parametrize("where", ["resume", "write_files", "end"])
def test_a_fault_in_start_stop_or_step(
    framework: Framework, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, call = framework.sequence(framework.layer()), vars(framework.module)["__call__"]
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        with (
            monkeypatch.context() as patch,
            pytest.warns(RuntimeWarning, match=r"fault of its own.*broken on purpose"),
        ):
            patch.setattr(DumpingStep, where, broken)
            debugger.start(net)
            framework.train(net, framework.ones(1, 2))
            debugger.stop()
            debugger.step()
        debugger.start(net)
        framework.train(net, framework.ones(1, 2))
        debugger.stop()
        debugger.step()
    assert vars(framework.module)["__call__"] is call
    assert records(tmp_path / "dump", step=1)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    ("error", "says"),
    [(MemoryError(), "there is not enough memory"), (OSError(errno.ENOSPC, "full"), "the disk is full")],
    ids=["memory", "disk"],
)
def test_what_is_said_is_true_at_that_moment(
    framework: Framework,
    error: Exception,
    says: str,
    gone: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = framework.sequence(framework.layer())
    folder = tmp_path / "dump" / "step0" / "rank"

    def lacking(*args: Any, **kwargs: Any) -> Any:
        if gone:
            shutil.rmtree(folder)
        raise error

    with (
        opened(framework.debugger, tmp_path, level="mix") as debugger,
        pytest.warns(RuntimeWarning, match=says) as told,
    ):
        debugger.start(net)
        framework.train(net, framework.ones(1, 2))
        monkeypatch.setattr(DumpingStep, "write_files", lacking)
        debugger.stop()
    said = next(str(each.message) for each in told if says in str(each.message))
    assert "report it" not in said and "fault of its own" not in said
    assert (f"{folder} is gone" in said) == gone
    assert (f"is readable (`probe recover {folder}`)" in said) != gone


@pytest.mark.parametrize(
    ("part", "where"),
    [(Part, "arguments"), (BackwardRecords, "attach"), (events, "back")],
    ids=["inputs", "output", "gradients"],
)
def test_a_fault_in_a_tap_is_counted_and_the_tap_goes_off(
    framework: Framework, part: Any, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradient() -> bytes:
        found: bytes = framework.array(
            framework.gradient(framework.functions.gelu, framework.ones(3))
        ).tobytes()
        return found

    without = gradient()
    monkeypatch.setattr(part, where, broken)
    with (
        opened(framework.debugger, tmp_path, level="L1", max_faults=3) as debugger,
        pytest.warns(RuntimeWarning, match="faults"),
    ):
        debugger.start()
        assert [gradient() for _ in range(5)] == [without] * 5
        debugger.stop()
        debugger.step()
    said = report(tmp_path / "dump")
    assert sum(fault["count"] for fault in said["faults"]) >= 3
    assert "broken on purpose" in (tmp_path / "dump/step0/rank/dump_error_info.log").read_text()
    if where == "arguments":
        assert any("switched off after 3 faults" in why for why in said["counts"]["left_out"])


def test_a_fault_in_one_tensor_costs_that_value_alone(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = framework.leaf.tensor

    def some(self: Any, placement: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if tuple(value.shape) == (7,):
            raise KeyError("broken on purpose")
        return whole(self, placement, value, *args, **kwargs)

    def work() -> None:
        framework.dot(framework.ones(7), framework.ones(7))
        framework.gelu()

    monkeypatch.setattr(framework.leaf, "tensor", some)
    data = capture(framework.debugger, tmp_path, work, level="L1")
    (product,) = (record for name, record in data.items() if name.endswith("dot.0.forward"))
    assert "broken on purpose" in product["input_args"][0]["unsupported"]
    assert product["output"][0]["Max"] == 7.0
    assert data["Functional.gelu.0.forward"]["input_args"][0]["Max"] == 1.0


@pytest.mark.parametrize("late", [False, True])
def test_a_gradient_whose_file_is_lost_costs_its_file_alone(
    framework: Framework, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, net = os.writev, framework.sequence(framework.layer(), framework.layer())
    hits: list[str] = []

    def gradients(folder: Path, fails: str = "") -> dict[tuple[str, ...], Any]:
        """Every gradient of a dump by its place, where writing the file of that name fails."""

        def writev(fd: int, parts: Any) -> int:
            if Path(os.readlink(f"/proc/self/fd/{fd}")).name == fails:
                hits.append(fails)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(fd, parts)

        monkeypatch.setattr(os, "writev", writev)
        with warnings.catch_warnings(action="ignore"):
            data = capture(
                framework.debugger,
                folder,
                lambda: framework.train(net, framework.ones(1, 2)),
                net,
                level="mix",
                task="tensor",
                async_dump=late,
            )
        return objects({name: record for name, record in data.items() if "forward" not in name})

    whole = gradients(tmp_path / "whole")
    for i, (place, gradient) in enumerate(whole.items()):
        found = gradients(tmp_path / str(i), gradient["data_name"])
        assert found.keys() == whole.keys()
        lost = [at for at in found if "data_name" not in found[at]]
        assert lost == [place] * (
            gradient["data_name"] in hits
        )  # a second name of an equal file needs no write
        assert all("lost" in found[at] and found[at]["Norm"] is not None for at in lost)
    assert len(hits) >= 4


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_no_argument_raises_into_the_run(framework: Framework, level: str, tmp_path: Path) -> None:
    net = framework.sequence(framework.layer())
    net.sink = framework.module_of("Sink", lambda self, value, x, kw=None: [value, x * 2, kw])
    x = framework.ones(3)

    def step(value: Any) -> bytes:
        assert net.sink(value, x, kw=value)[0] is value
        found = framework.gradient(lambda x: net.sink([value], x, kw={"a": value})[1], x)
        gradient: bytes = framework.array(found).tobytes()
        return gradient

    taken, gradients = {}, []
    for name, value in HOSTILE.items():
        try:
            gradients.append(step(value))
        except BaseException:  # the framework itself raises, without Probe too
            continue
        taken[name] = value
    assert len(taken) >= framework.hostile, HOSTILE.keys() - taken.keys()
    with opened(framework.debugger, tmp_path, level=level, task="tensor") as debugger:
        debugger.start(net)
        assert [step(value) for value in taken.values()] == gradients
        debugger.stop()
        debugger.step()
    data = records(tmp_path / "dump")
    calls = [name for name in data if name.startswith(f"{framework.kind}.sink.Sink.forward")]
    assert len(calls) == 2 * len(taken)
    assert all(data[name]["input_args"][1]["Norm"] for name in calls)
    assert not report(tmp_path / "dump")["faults"]


class Unhashable(type):
    """A metaclass whose classes are no keys."""

    def __eq__(cls, other: object) -> bool:
        return cls is other


@dataclasses.dataclass
class Answer(metaclass=Unhashable):
    value: Any


class Bag(dict[str, Any], metaclass=Unhashable):
    pass


def test_a_value_may_be_of_a_class_without_a_hash(framework: Framework, tmp_path: Path) -> None:
    net = framework.sequence(framework.module_of("Sink", lambda self, *given: given[0] * 2))
    x = framework.ones(2)
    keys = {"level": "L0", "task": "statistics"}
    work = lambda: net[0](x, Answer(x), [Bag(a=x)], {"b": Answer([x])})  # noqa: E731
    data = capture(framework.debugger, tmp_path, work, net, **keys)
    _, answer, (bag,), inside = data[f"{framework.kind}.0.Sink.forward.0"]["input_args"]
    assert [e["Max"] for e in (answer["value"], bag["a"], inside["b"]["value"][0])] == [1.0] * 3


@pytest.mark.parametrize("error", [Raises, Leaves])
@pytest.mark.parametrize("times", [1, 5])
def test_an_exception_that_cannot_say_what_it_is_is_the_users_still(
    framework: Framework, times: int, error: type[BaseException], tmp_path: Path
) -> None:
    def raises(self: Any, x: Any) -> Any:
        raise error

    net = framework.sequence(framework.module_of("Fails", raises))
    with opened(framework.debugger, tmp_path, level="mix", max_faults=3) as debugger:
        debugger.start(net)
        for _ in range(times):
            with pytest.raises(error):
                net(framework.ones(2))
        debugger.stop()
        debugger.step()
    name = f"{framework.kind}.0.Fails.forward.0"
    assert records(tmp_path / "dump")[name]["raised"].startswith(f"{error.__name__}: ")
    assert not report(tmp_path / "dump")["faults"]


__all__ = [name for name in dir() if name.startswith("test_")]
