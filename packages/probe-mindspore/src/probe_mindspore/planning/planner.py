"""Say what a dump would write: run one step of the net as if it were recorded, and put the net back as it was."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve
from mindspore import Tensor, nn
from probe_format.errors import UsageError
from probe_runtime.collect import kind_of
from probe_runtime.config import Config
from probe_runtime.planning import CountedFiles, DumpPlan, outcome, wanted
from probe_runtime.session import JointStep, RunningStep

from probe_mindspore import __version__
from probe_mindspore.debugger import PrecisionDebugger
from probe_mindspore.graph.taps import graph_mode
from probe_mindspore.module_kind import CELLS, detect
from probe_mindspore.session.step import StepOpener

from .kept_state import unchanged
from .planned_leaf import PlannedLeaf
from .training import train, unchanged_randomness


def plan(
    net: nn.Cell,
    config: Config | Mapping[str, Any] | str | Path,
    *inputs: Any,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Any = None,
    **keywords: Any,
) -> DumpPlan:
    """Return what a dump of one training step would write: records, tensors, files, bytes.

    MindSpore has no tensors without memory, so the step really runs, on these inputs, and is recorded as a real one
    would be. Tensor files are counted and not written, nothing goes to dump_path, and afterwards the net, the
    optimizer and the inputs hold what they held before, and random numbers go on as if there had been no step.

    net: the net that `PrecisionDebugger.start` will get, under PyNative.
    config: the path of a configuration, its keys as a dict, or a Config.
    inputs, keywords: what the net is called with.
    loss: takes what the net returned and returns the loss; what it calls is recorded, as in a real step. Without it
        the backward pass starts from a loss in the output, else from the sum of the outputs, which is not recorded.
    optimizer: makes a step after the backward pass, recorded as when it stands before `stop()`.

    Under ``mindspore._no_grad()``, and for a net without trained parameters, there is no backward pass.

    Raises ConfigError for a wrong configuration; UsageError where the level records no calls, while a dump is being
    made, and in GRAPH_MODE.
    """
    session = PrecisionDebugger._current
    config = wanted(config, collecting=session is not None and session.collecting)
    _check(net)
    files = CountedFiles()
    kept = (net, optimizer, loss, inputs, keywords)
    models = [one for one in (net, optimizer, loss) if isinstance(one, nn.Cell)]
    temporary = tempfile.TemporaryDirectory(prefix="probe-plan-")
    with temporary as folder, unchanged(*kept), unchanged_randomness(models):
        with _opened(config, net, Path(folder), files) as parts:
            notes = train(net, inputs, keywords, loss, optimizer)
        reports = [part.end() for part in parts]
        found = [report for report in reports if report]  # the part for graphs has none where none ran
        return outcome(config, found, Path(folder), files, notes)


def _check(net: object) -> None:
    if not isinstance(net, nn.Cell):
        raise UsageError(f"The net to plan for must be a mindspore.nn.Cell; got {kind_of(net)}.")
    if graph_mode():
        raise UsageError(
            "A plan makes a step under PyNative, and this is GRAPH_MODE. Set PYNATIVE_MODE for the plan: its L0 has "
            "the same Cells. Or dump one step with task statistics: its shapes say what task tensor writes."
        )
    if detect() is not CELLS:
        raise UsageError(
            "With a torch built on MindSpore (mindtorch) nothing can be planned. Dump one step with task statistics: "
            "its shapes say what task tensor writes."
        )


@contextlib.contextmanager
def _opened(config: Config, net: nn.Cell, folder: Path, files: CountedFiles) -> Iterator[list[RunningStep]]:
    """Collect into a folder while open, and only count tensor files. Yields the step, or its two parts."""
    here = evolve(config, dump_path=folder, overwrite=False)
    leaf: Any = partial(PlannedLeaf, files=files)
    opener = StepOpener(here, f"probe-mindspore {__version__}", CELLS, leaf)
    base, opened = opener.target_for(folder, net)
    step: Any = opened(base / "step0" / "rank", {"rank": None, "step": 0})
    parts: list[Any] = [*step.parts[::-1]] if isinstance(step, JointStep) else [step]
    for part in parts:
        part.matched_elsewhere = lambda _filter, _value: True  # `DumpPlan.unmatched` says it
    try:
        step.resume(net, None)
        yield parts
        step.pause()
    except BaseException:
        step.abandon()
        raise
