"""`on_non_finite`: the run gets an error, or the debugger, at the call where values begin that are not finite."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import records, report
from framework import Framework
from opening import opened
from probe_format.errors import ConfigError, NonFiniteError
from probe_format.read.verify import verify


class Step:
    """One step of a debugger, and what it raised."""

    def __init__(self, framework: Framework, folder: Path, work: Callable[[], Any], **keys: Any) -> None:
        self.error: NonFiniteError | None = None
        self.error_at_stop: NonFiniteError | None = None
        self.dump = folder / "dump"
        keys = {"level": "mix", "on_non_finite": "raise", **keys}
        with opened(framework.debugger, folder, **keys) as debugger:
            debugger.start(framework.sequence(framework.layer()))
            try:
                work()
            except NonFiniteError as error:
                self.error = error
            for each in (debugger.stop, debugger.step):
                try:
                    each()
                except NonFiniteError as error:
                    self.error_at_stop = error

    @property
    def of(self) -> NonFiniteError:
        assert self.error is not None and self.error_at_stop is None
        return self.error


def number(framework: Framework, value: float) -> Any:
    """A tensor of one value, made by no recorded call."""
    return framework.ones(2, 2) * value


def roots(framework: Framework, x: Any) -> Any:
    return framework.functions.relu(x.sqrt())


def test_the_line_of_a_module_that_was_loaded_again_is_the_new_one(
    framework: Framework, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    for word in ("first", "second try"):
        file.write_text(f"def roots(x):\n    return x.sqrt()  # {word}\n")
        made: dict[str, Any] = {"__name__": "mine"}
        exec(compile(file.read_text(), str(file), "exec"), made)
        work = functools.partial(made["roots"], number(framework, -1.0))
        error = Step(framework, tmp_path / word, work).of
        assert str(error).endswith(f"return x.sqrt()  # {word}.")


def test_it_is_raised_at_the_first_call_that_makes_one(framework: Framework, tmp_path: Path) -> None:
    low = number(framework, -1.0)
    done: list[str] = []

    def work() -> None:
        framework.gelu()
        done.append("before")
        roots(framework, low)
        done.append("after")

    error = Step(framework, tmp_path, work).of
    assert done == ["before"]
    assert error.record == "Tensor.sqrt.0.forward"
    assert "Tensor.sqrt.0.forward makes the first value that is not finite" in str(error)
    assert "4 NaN of 4" in str(error) and "x.sqrt()" in str(error)
    assert Path(__file__).name in error.line and "in roots" in error.line
    assert "output" in records(tmp_path / "dump")["Tensor.sqrt.0.forward"]
    assert report(tmp_path / "dump")["first_non_finite"]["record"] == "Tensor.sqrt.0.forward"
    assert not report(tmp_path / "dump")["faults"]
    assert [verdict.state for verdict in verify(tmp_path / "dump")] == ["complete"]


def test_without_it_all_is_recorded(framework: Framework, tmp_path: Path) -> None:
    low = number(framework, -1.0)
    step = Step(framework, tmp_path, lambda: roots(framework, low), on_non_finite="record")
    assert step.error is None and step.error_at_stop is None
    assert any(name.startswith("Functional.relu") for name in records(tmp_path / "dump"))


def test_a_module_that_gets_one_is_not_called(framework: Framework, tmp_path: Path) -> None:
    bad, called = number(framework, float("nan")), []
    net = framework.module_of("Net", lambda net, x: called.append(x) or x * 2)

    def work() -> None:
        framework.debugger.stop()
        framework.debugger.start(framework.sequence(net))
        net(bad)

    error = Step(framework, tmp_path, work, level="L0").of
    assert not called
    assert ".Net.forward.0 is the first to hold values that are not finite" in str(error)
    assert "outside of what was recorded" in str(error)


def test_a_mask_triggers_nothing(framework: Framework, tmp_path: Path) -> None:
    scores = framework.ones(3, 3)
    mask = scores.triu(1).bool()

    def work() -> None:
        masked = scores.masked_fill(mask, float("-inf"))
        framework.functions.softmax(masked, -1)

    step = Step(framework, tmp_path, work)
    assert step.error is None and step.error_at_stop is None
    held = records(tmp_path / "dump")["Tensor.masked_fill.0.forward"]["output"][0]
    assert held["Min"] == "-Infinity" or held["Min"] == "-Inf" or held["neginf_count"] == 3


def test_what_a_mask_makes_of_another_kind_does(framework: Framework, tmp_path: Path) -> None:
    scores = framework.ones(3, 3)
    mask = scores.triu(1).bool()

    def work() -> None:
        masked = scores.masked_fill(mask, float("-inf"))
        masked - masked

    error = Step(framework, tmp_path, work).of
    assert "__sub__" in error.record and "but of another kind" in str(error)


def test_gradients_that_begin_it(framework: Framework, tmp_path: Path) -> None:
    zero = number(framework, 0.0)

    def work() -> None:
        framework.gradient(lambda x: x.sqrt(), zero)

    step = Step(framework, tmp_path, work, level="L1")
    error = step.error or step.error_at_stop
    assert error is not None and error.record == "Tensor.sqrt.0.backward"
    assert "The gradients that it gets are finite" in str(error)
    assert f"{Path(__file__).name}:" in error.line


def test_the_users_handler_goes_on_and_each_step_has_one(framework: Framework, tmp_path: Path) -> None:
    low = number(framework, -1.0)
    caught = []
    with opened(framework.debugger, tmp_path, level="L1", on_non_finite="raise") as debugger:
        for _ in range(3):
            debugger.start()
            for _ in range(2):
                try:
                    roots(framework, low)
                except NonFiniteError as error:
                    caught.append(error.record)
            debugger.stop()
            debugger.step()
    assert caught == ["Tensor.sqrt.0.forward"] * 3
    for step in range(3):
        assert "Functional.relu.0.forward" in records(tmp_path / "dump", step)


def test_the_debugger_is_entered_at_the_call(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, stops = number(framework, -1.0), []

    def hook() -> None:
        stops.append(any(frame.name == "roots" for frame in traceback.extract_stack()))
        framework.gelu()  # whatever the user computes there is not recorded

    monkeypatch.setattr(sys, "breakpointhook", hook)
    with pytest.warns(RuntimeWarning, match="Tensor.sqrt.0.forward makes the first value"):
        step = Step(framework, tmp_path, lambda: roots(framework, low), on_non_finite="break")
    assert stops == [True]
    assert step.error is None and step.error_at_stop is None
    names = list(records(tmp_path / "dump"))
    assert "Functional.relu.0.forward" in names and not any("gelu" in name for name in names)


def test_who_leaves_the_debugger_leaves_the_run(
    framework: Framework, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(Exception):
        pass

    def hook() -> None:
        raise Left

    low = number(framework, -1.0)
    monkeypatch.setattr(sys, "breakpointhook", hook)
    with pytest.raises(Left), pytest.warns(RuntimeWarning):
        Step(framework, tmp_path, lambda: roots(framework, low), on_non_finite="break")


def test_numbers_that_come_late_are_told_at_stop(framework: Framework, tmp_path: Path) -> None:
    low, done = number(framework, -1.0), []

    def work() -> None:
        roots(framework, low)
        done.append("after")

    step = Step(framework, tmp_path, work, async_dump=True)
    error = step.error or step.error_at_stop
    assert error is not None and error.record == "Tensor.sqrt.0.forward"
    assert bool(done) == (step.error is None)


def test_bits_stay(framework: Framework, tmp_path: Path) -> None:
    x = framework.ones(2, 2)
    plain = framework.array(framework.gradient(lambda t: t.exp() * t, x)).tobytes()
    found: list[bytes] = []

    def work() -> None:
        found.append(framework.array(framework.gradient(lambda t: t.exp() * t, x)).tobytes())

    Step(framework, tmp_path, work)
    assert found == [plain] and np.frombuffer(plain, np.float32).size == 4


@pytest.mark.parametrize("mode", [["input"], ["output"], ["forward", "input"]])
def test_one_side_alone_cannot_be_compared(framework: Framework, tmp_path: Path, mode: list[str]) -> None:
    with pytest.raises(ConfigError, match="on_non_finite"):
        framework.debugger(dump_path=str(tmp_path), on_non_finite="raise", data_mode=mode)
