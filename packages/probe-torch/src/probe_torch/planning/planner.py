"""Say what a dump would write: run a step on tensors without numbers, with the code that records a real step."""

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from probe_format.errors import UsageError
from probe_runtime.collect import kind_of
from probe_runtime.config import Config
from probe_runtime.planning import CountedFiles, DumpPlan, outcome, wanted
from probe_runtime.session import DumpingStep
from torch import nn

from probe_torch import __version__
from probe_torch.compiling import uncompiled
from probe_torch.debugger import PrecisionDebugger
from probe_torch.hooks.modules import compiled_parts
from probe_torch.session.step import StepOpener

from .planned_leaf import PlannedLeaf
from .stand_ins import StandIns
from .training import train, unchanged_randomness

_COMPILED = (
    "Planned as if torch.compile were not there: {}. With compiled: eager a dump is so; else it has only the calls of "
    "the regions, and is smaller."
)


def plan(
    model: nn.Module,
    config: Config | Mapping[str, Any] | str | Path,
    *inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    **keywords: Any,
) -> DumpPlan:
    """Return what a dump of one training step would write: records, tensors, files, bytes.

    The step runs on copies whose tensors have shapes and no numbers, with the code that records a real step: nothing
    is computed, nothing is written to dump_path, and the model stays as it is. A model and inputs made under
    ``torch.device("meta")`` will do, so that no memory is needed for the weights.

    model: the model that `PrecisionDebugger.start` will get.
    config: the path of a configuration, its keys as a dict, or a Config.
    inputs, keywords: what the model is called with.
    loss: takes what the model returned and returns the loss; what it calls is recorded, as in a real step. Without it
        the backward pass starts from a loss in the output, else from the sum of the outputs, which is not recorded.
    optimizer: makes a step after the backward pass, recorded as when it stands before `stop()`.

    Raises ConfigError for a wrong configuration; UsageError where the level records no calls, while a dump is being
    made, and where the model asks for the numbers of a tensor (``.item()``, ``if t > 0``).
    """
    session = PrecisionDebugger._current
    config = wanted(config, collecting=session is not None and session.collecting)
    if not isinstance(model, nn.Module):
        raise UsageError(f"The model to plan for must be a torch.nn.Module; got {kind_of(model)}.")
    files = CountedFiles()
    follows = torch.is_grad_enabled()
    with (
        # New tensors have versions, which those of `torch.inference_mode` have not. Gradients stay as they are.
        torch.inference_mode(False),
        torch.set_grad_enabled(follows),
        tempfile.TemporaryDirectory(prefix="probe-plan-") as folder,
        unchanged_randomness(),
    ):
        stand_ins = StandIns()
        copied, copied_optimizer = stand_ins.model(model, optimizer)
        given = tuple(stand_ins.value(value) for value in inputs)
        named = {key: stand_ins.value(value) for key, value in keywords.items()}
        one_step = partial(train, copied, given, named, loss, copied_optimizer)
        notes = []
        step = _opened(config, Path(folder) / "rank", files)
        with stand_ins.mode, warnings.catch_warnings(), contextlib.ExitStack() as stack:
            if compiled := tuple(compiled_parts(model)):
                stack.enter_context(uncompiled())
                notes.append(_COMPILED.format(", ".join(compiled)))
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
            if optimizer is not None:
                one_step()  # the first step makes the optimizer's state, which a usual step has already
            try:
                step.resume(copied, None)
                notes += one_step()
            except BaseException:
                step.abandon()
                raise
            report = step.end()
        assert report is not None
        return outcome(config, [report], Path(folder), files, notes)


def _opened(config: Config, directory: Path, files: CountedFiles) -> DumpingStep:
    """Return a step that collects into a folder of its own, and only counts its tensor files."""
    leaf: Any = partial(PlannedLeaf, files=files)
    opener = StepOpener(config, f"probe-torch {__version__}", leaf)
    step = opener.open(directory, {"rank": None, "step": 0})
    step.matched_elsewhere = lambda _filter, _value: True  # the plan tells which filters matched nothing
    return step
