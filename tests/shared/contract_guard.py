"""Nothing of ours raises into the user's step, wherever a framework calls us. Each framework adds its own places."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from documents import strict
from faults import broken
from framework import Framework
from opening import opened
from probe_format.journal import events
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.collector import Collector
from probe_runtime.collect.recorder import Recorder
from probe_runtime.collect.walk import Part

__all__ = ["PLACES", "check_a_fault", "check_the_report"]

#: Where a framework comes to us -> what breaks the first function of ours that is called there.
PLACES: dict[str, Callable[[], AbstractContextManager[list[int]]]] = {
    "a call begins": partial(broken, Recorder, "begin"),
    "its inputs": partial(broken, Part, "arguments"),
    "it ends": partial(broken, Recorder, "end"),
    "its result": partial(broken, Part, "results"),
    "its output": partial(broken, events, "exit"),
    "the graph is hooked": partial(broken, BackwardRecords, "attach"),
    "a gradient is recorded": partial(broken, events, "back"),
    "a parameter's gradient": partial(broken, Collector, "parameter_gradient"),
    "a region of the step": partial(broken, Collector, "push"),
}


def check_a_fault(
    framework: Framework,
    breaking: Callable[[], AbstractContextManager[list[int]]],
    made: Callable[[], Any],
    step: Callable[[Any], list[bytes]],
    folder: Path,
    level: str,
) -> None:
    """Break a function of ours in a step: it is called, and the step computes what it computes without Probe.

    breaking: one of the places. made: makes a network. step: trains it and returns all that the user has of it.
    """
    without = step(made())
    net = made()
    with opened(framework.debugger, folder, level=level) as debugger:
        with breaking() as times:
            debugger.start(net)
            seen = step(net)
        debugger.stop()
        debugger.step()
    assert seen == without
    assert times[0], "nobody came there"


def check_the_report(folder: Path) -> None:
    """The fault is in a report and in a log."""
    reports = [strict(path) for path in folder.rglob("report.json")]
    assert any("injected" in fault["message"] for report in reports for fault in report["faults"])
    assert any("injected" in path.read_text() for path in folder.rglob("dump_error_info.log"))
