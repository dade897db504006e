"""What lives as long as a debugger: its configuration, where the step count is, the step being dumped."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import ProbeError, UsageError
from probe_format.excerpts import brief, error_text
from probe_format.layout import existing_dump, rank_dir
from probe_format.write import clear, explain

from probe_runtime.config.config import Config
from probe_runtime.config.number_ranges import parse_init_step, parse_token_range
from probe_runtime.notice import notice
from probe_runtime.select.filters import RankFilter, StepFilter

from .step import Step
from .token_gate import TokenGate

__all__ = ["Framework", "Session", "warn"]

#: (directory, extra header keys) -> the step
OpenStep = Callable[[Path, Mapping[str, Any]], Step]

_live: weakref.WeakSet[Session] = weakref.WeakSet()


@frozen
class Framework:
    """What a session needs of a framework's package.

    log: where it tells what it did. rank: of this process, None when not distributed. target_for: (dump_path, model)
    -> where the steps of this model go, and what opens one, given its directory and extra header keys; that
    raises OSError when it cannot be written. wants_model: what to say when level L0 or mix is given no model;
    ``{level}`` stands in it. models: the models in what was given as one; raises UsageError. unstopped: whether
    step() is right without a stop() before it, as msprobe's guide has it for GRAPH_MODE.
    """

    log: logging.Logger
    rank: Callable[[], int | None]
    target_for: Callable[[Path, Any], tuple[Path, OpenStep]]
    wants_model: str
    models: Callable[[Any], object]
    unstopped: Callable[[], bool] = bool


@define(eq=False, slots=False)
class Session:
    """One configuration at work. start and stop and step may be called in any order; misuse is told, once.

    patches: the patched functions, for `register_custom_api`.
    """

    config: Config
    model: Any
    framework: Framework
    patches: Any
    step_number: int = 0
    closed: bool = False
    run: Step | None = None
    _steps: StepFilter = field(init=False)
    _ranks: RankFilter = field(init=False)
    _named: tuple[Any, str] | None = None
    _said: set[str] = field(factory=set)
    _skip_step: int | None = None

    def __attrs_post_init__(self) -> None:
        self._steps = StepFilter(self.config)
        self._ranks = RankFilter(self.config)
        _live.add(self)

    @property
    def collecting(self) -> bool:
        """Between start() and stop(), on a step and rank that are wanted."""
        return self.run is not None and self.run.running

    # -- the user's calls -----------------------------------------------------------------------------

    def start(self, model: Any, token_range: Any) -> None:
        """Begin, or go on, collecting the current step."""
        if self.closed:
            raise UsageError("This debugger is closed. Make a new PrecisionDebugger to dump more steps.")
        model = model if model is not None else self.model
        self.framework.models(model)
        tokens = parse_token_range(token_range)
        self._check_model(model, tokens)
        if not self._steps(self.step_number) or self._skip_step == self.step_number:
            return
        if not self._ranks(self.framework.rank()):
            return
        if self.run is not None and self.run.running:
            self._say_once(
                "start() was called twice: it is collecting already. stop() comes first; this call has no effect."
            )
            return
        if self.run is None:
            self.run = self._begin(model)
            if self.run is None:
                return
        gate = None if tokens is None else TokenGate(*tokens)
        if self._named is not None:
            self.run.table.add_named(*self._named)
        run = self.run
        with self._guarded(run, "start()"):
            run.resume(model, gate)

    def stop(self) -> None:
        """Stop collecting; write what there is. Gradients that arrive before step() still belong to it."""
        if self.run is None or not self.run.running:
            if self._wanted():
                self._say_once("stop() was called without start(); it has no effect.")
            return
        run = self.run
        with self._guarded(run, "stop()"):
            run.pause()
            run.settle()

    def step(self) -> None:
        """The step is over: write it, and count on."""
        run, self.run = self.run, None
        if run is not None:
            if run.running and not self.framework.unstopped():
                self._say_once("step() was called before stop(); collecting was stopped first.")
            with self._guarded(run, "step()"):
                report = run.end()
                if report is not None:
                    said = "step %d is dumped: %d records in %s"
                    self.framework.log.info(said, self.step_number, report["records"], run.directory)
        self.step_number += 1
        self._skip_step = None
        if run is not None and self._steps.over(self.step_number):
            self.framework.log.info("every step asked for is dumped, below %s", self.config.dump_path)

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Saving single values is the job of level "debug": here it is said once that nothing is saved."""
        self._say_once(f"save() saves at level debug; at level {self.config.level} it has no effect.")
        return variable

    def set_init_step(self, step: Any) -> None:
        """Count steps from ``step``, as when a run goes on from a checkpoint."""
        first = parse_init_step(step)
        if self.run is not None:
            raise UsageError(
                "set_init_step must be called before the first start(), outside the training loop."
            )
        self.step_number = first

    def module_dump(self, module: Any, name: Any) -> None:
        """Dump one module under a name, and nothing inside it, until `module_dump_end`."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"module_dump wants a name for the module; got {brief(name)}.")
        self._named = (module, name)
        if self.run is not None and self.run.running:
            self.run.pause()
            self.run.table.add_named(module, name)
            self.run.resume(None, self.run.gate)

    def module_dump_end(self) -> None:
        """End `module_dump`."""
        if self._named is None:
            raise UsageError("module_dump_end() was called, but no module_dump(module, name) is open.")
        if self._named is not None and self.run is not None:
            self.run.table.entries.pop(id(self._named[0]), None)
        self._named = None

    def close(self) -> None:
        """Finish the open step, if any, and take everything away. More calls do nothing."""
        if self.closed:
            return
        self.closed = True
        run, self.run = self.run, None
        if run is not None:
            with self._guarded(run, "close()"):
                run.end()
        _live.discard(self)

    @contextlib.contextmanager
    def _guarded(self, run: Step, where: str) -> Iterator[None]:
        """A fault of Probe's own costs this step's dump, not the run; what is in the journal stays readable."""
        try:
            yield
        except ProbeError:
            raise
        except Exception as e:
            self.run = None
            self._skip_step = self.step_number
            with contextlib.suppress(Exception):
                run.abandon()
            warn(
                f"a fault of its own in {where} ended the dump of step {self.step_number}; the run goes on, and "
                f"what was recorded is readable (`probe recover`). Please report it: {_brief_trace(e)}"
            )

    # -- inside ---------------------------------------------------------------------------------------

    def _begin(self, model: Any) -> Step | None:
        rank = self.framework.rank()
        base, open_step = self.framework.target_for(self.config.dump_path, model)
        directory = rank_dir(base, self.step_number, rank)
        if not self.config.overwrite and existing_dump(base, rank, (self.step_number,)):
            self._skip_step = self.step_number
            warn(
                f"{directory} holds earlier data, so step {self.step_number} is not dumped. Give another "
                "dump_path, or set overwrite=True."
            )
            return None
        try:
            if self.config.overwrite:
                clear(directory)
            return open_step(directory, {"rank": rank, "step": self.step_number})
        except OSError as e:
            self._skip_step = self.step_number
            warn(f"Step {self.step_number} is not dumped: {explain(e, directory)}")
            return None

    def _check_model(self, model: Any, tokens: Any) -> None:
        if (
            model is None
            and self.config.level in ("L0", "mix")
            and self._named is None
            and not self._has_model()
        ):
            raise UsageError(self.framework.wants_model.format(level=self.config.level))
        if tokens is not None and model is None:
            raise UsageError(
                "token_range counts calls of the model, so it needs one: start(model=..., token_range=...)."
            )

    def _has_model(self) -> bool:
        return self.run is not None and bool(self.run.table.entries)

    def _wanted(self) -> bool:
        return (
            self._steps(self.step_number) and self._ranks(self.framework.rank()) and self._skip_step is None
        )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warn(text)


def _brief_trace(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-3:]
    at = " < ".join(f"{f.name} ({os.path.basename(f.filename)}:{f.lineno})" for f in reversed(last))
    return f"{error_text(error)} in {at}"


def warn(text: str) -> None:
    """Tell the user, as if from the line of theirs that led here."""
    notice(f"Probe: {text}")


def _in_forked_child() -> None:
    """A child of fork() (a data loader's worker) shares the journal's file: it must record nothing."""
    for session in list(_live):
        if session.run is not None:
            session.run.mute()


os.register_at_fork(after_in_child=_in_forked_child)
