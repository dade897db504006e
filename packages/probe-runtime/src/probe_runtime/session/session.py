"""Run a debugger's session: follow start, stop and step, and dump the steps that the configuration selects."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import define, field
from probe_format.errors import ConfigError, ProbeError, Problem, UsageError
from probe_format.excerpts import brief, error_text, from_signal, unsignalled
from probe_format.layout import holds_data
from probe_format.write import Claim, clear, explain, reason, remains

from probe_runtime.config.config import Config
from probe_runtime.config.number_ranges import parse_init_step, parse_rank_id, parse_token_range
from probe_runtime.config.source import ConfigSource
from probe_runtime.earlier_dump import EarlierDump
from probe_runtime.notice import Notices, log, notice
from probe_runtime.patching.patches import Patches
from probe_runtime.patching.switch import muted
from probe_runtime.watch import Allowance, Budget

from .any_session import AnySession
from .exporter import Exporter
from .framework import Framework, Opened
from .last_model import LastModel
from .reload import Reload
from .session_triggers import SessionTriggers
from .step import RunningStep
from .token_gate import TokenGate

_live: weakref.WeakSet[Session] = weakref.WeakSet()
_P = ParamSpec("_P")
_R = TypeVar("_R")
#: Held by each call: of two at once, what one puts in place for a step would stay there.
_turn = threading.RLock()
os.register_at_fork(after_in_child=_turn._at_fork_reinit)  # type: ignore[attr-defined]


def _in_turn(
    call: Callable[Concatenate[Session, _P], _R],
) -> Callable[Concatenate[Session, _P], _R]:
    """Return a method that lets one thread in at a time."""

    @functools.wraps(call)
    def method(self: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _turn:
            return call(self, *args, **kwargs)

    return method


@define(eq=False, slots=False)
class Session(AnySession):
    """One open debugger. start, stop and step may be called in any order; each misuse gives one warning.

    config: the configuration.
    model: the debugger's model, or None.
    framework: what the framework's package provides.
    step_number: the number of the current step.
    closed: whether close() was called.
    run: the step that is being dumped, or None.
    about: more keys for the header of each step.
    reload: reads the configuration file again, where that is asked for.
    exporter: writes the steps as tables, where that is asked for.
    """

    config: Config
    model: Any
    framework: Framework
    step_number: int = 0
    closed: bool = False
    run: RunningStep | None = None
    about: dict[str, Any] = field(factory=dict)
    reload: Reload | None = None
    _rank_id: int | None = None
    _named: tuple[Any, str] | None = None
    _warn_once: Callable[[str], bool] = field(factory=lambda: Notices().tell, init=False)
    _skip_step: int | None = None
    _last_model: LastModel = field(factory=LastModel)
    _claim: Claim = field(init=False)
    _ready: Any = None
    _ended_early: RunningStep | None = None
    _budget: Budget = field(init=False)
    _earlier: EarlierDump = field(init=False)
    _allowance: Allowance | None = None
    _opened: Opened = field(init=False)
    when: SessionTriggers | None = field(init=False)
    exporter: Exporter | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._budget = Budget(self.config, self._processes)
        self.when = SessionTriggers(self.config, self.framework) if self.config.when else None
        self._claim = Claim(self.config.dump_path)
        self._earlier = EarlierDump(self.framework.world_size)
        tables = self.config.tables
        self.exporter = None if tables is None else Exporter(self.config.dump_path, tables)
        self._take(self.config, self.framework.opened(self.config))
        _live.add(self)

    @property
    def patches(self) -> Patches:
        """Return the patched functions, for `register_custom_api`."""
        return self._opened.patches

    @property
    def collecting(self) -> bool:
        """Return whether the session is between start() and stop(), on a wanted step and rank."""
        return self.run is not None and self.run.running

    # -- the user's calls -----------------------------------------------------------------------------

    @_in_turn
    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        """Start or resume collecting in the current step, if this step and rank are wanted.

        model: needed at L0 and mix; without it, the debugger's model is taken, or else the model of an earlier start(),
            as long as it is alive.
        token_range: the calls of the model to collect, [first, last], both included, from 0; None for all.
        rank_id: the rank of this process from here on; None for what the framework says, or was given before.

        Raises UsageError when an argument is wrong, and after close().
        """
        self._refuse_closed()
        given, model = model, model if model is not None else self.model
        if model is None:
            model = self._last_model.get()
        self.framework.models(model)
        tokens = parse_token_range(token_range)
        self._check_model(model, tokens)
        self._rank_id = parse_rank_id(rank_id, self._rank_id)
        if given is not None:
            self._last_model.note(given)
        if not (self._takes(self.step_number) and self.config.wants_rank(self._rank())):
            return
        if self.run is not None and self.run.running:
            self._warn_once(
                "start() was called twice: it is collecting already. stop() comes first; this call has no effect."
            )
            return
        if self.run is None:
            self.run = self._begin(model)
        if (run := self.run) is None:
            return
        if self._named is not None:
            run.table.add_named(*self._named)
        with self._guarded(run, "start()"):
            run.resume(model, None if tokens is None else TokenGate(*tokens))

    def reconfigure(self, config: Config) -> None:
        """Dump by another configuration from the next step on; `dump_path` stays. Call it between two steps.

        Raises ConfigError when the framework's package cannot do it; then everything stays as it is.
        """
        if config.kind.calls != self.config.kind.calls:
            began = "not watching" if self.config.kind.calls else "watching"
            what = f"cannot become {config.task!r} while the run goes on: {began} began with it."
            raise ConfigError([Problem("task", what, "Start the run anew with it.")])
        opened = self.framework.opened(config)
        self.unready()
        opened.patches.register_those_of(self.patches)
        self._take(config, opened)

    def follows(self, source: ConfigSource) -> bool:
        """Return whether the session is open and reads this file again whenever the file changes."""
        return not self.closed and self.reload is not None and self.reload.source.is_same(source)

    def make_ready(self, *models: Any, ahead: int | None = 0) -> None:
        """Replace functions from now on if the next step is wanted; nothing is recorded before `start`.

        A start() in the middle of an expression, as ``loss(model(x))``, is too late for functions that Python has
        looked up there already.

        models: searched for attributes that hold one of the functions.
        ahead: the next step has the current number or, at most, one this much higher; None where that is not known.
        """
        numbers = range(self.step_number, self.step_number + (ahead or 0) + 1)
        raised = self._raised(self.step_number)
        wanted = (
            (raised or self).config.level != "L0"
            and not self.closed
            and (ahead is None or any(map(self._takes, numbers)))
            and self.config.wants_rank(self._rank())
        )
        patches = self.patches if raised is None else raised.opened(self.patches).patches
        if self._ready is not None and not (wanted and patches is self._ready):
            self.unready()
        if wanted and self._ready is None:
            patches.apply(*models)
            self._ready = patches

    def unready(self) -> None:
        """Undo `make_ready`."""
        if self._ready is not None:
            ready, self._ready = self._ready, None
            ready.undo()

    @_in_turn
    def stop(self) -> None:
        """Stop collecting and write the files. Gradients that arrive before step() are still recorded.

        Raises an error of the run that Probe has met and that was not raised yet.
        """
        if self.run is None or not self.run.running:
            wanted = self._takes(self.step_number) and self.config.wants_rank(self._rank())
            if wanted and self._skip_step is None and not self.closed:
                self._warn_once("stop() was called without start(); it has no effect.")
            return
        run = self.run
        with self._guarded(run, "stop()"):
            run.pause()
            run.write_files()
        run.hand_on()

    @_in_turn
    def step(self) -> None:
        """End the step: write its last files, and begin the next step. Raises as `stop` does."""
        run, self.run = self.run, None
        report = None
        try:
            if run is not None:
                if run.running and not self.framework.unstopped():
                    self._warn_once("step() was called before stop(); collecting was stopped first.")
                with self._guarded(run, "step()"):
                    report = run.end()
                    if report is not None:
                        said = f"step {self.step_number} is dumped: {report['records']} records in {run.directory}"
                        log(self.framework.package, said)
        finally:  # a signal's handler may have raised
            try:
                self._over(run, report)
                self._claim.rest()
            finally:
                self.step_number += 1
                self._skip_step = None
        last = self.config.step.last
        if run is not None and last is not None and self.step_number > last:
            log(self.framework.package, f"every step asked for is dumped, below {self.config.dump_path}")
        if self.reload is not None:
            self.reload.look(self)
        if run is not None:
            run.hand_on()

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Return the value; warn once that only level "debug" saves single values."""
        self._warn_once(f"save() saves at level debug; at level {self.config.level} it has no effect.")
        return variable

    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run, for the conditions under `when`."""
        if self.when is not None:
            with muted():  # to read a tensor is no call of the user's
                self.when.observe(name, value)

    def set_init_step(self, step: Any) -> None:
        """Number the steps from ``step``, as when a run resumes from a checkpoint.

        Raises UsageError when ``step`` is not a whole number from 0 up, or while a step is being dumped.
        """
        first = parse_init_step(step)
        if self.run is not None:
            raise UsageError(
                "set_init_step must be called before the first start(), outside the training loop."
            )
        self.step_number = first

    def module_dump(self, module: Any, name: Any) -> None:
        """Record one module as ``name``, and nothing inside it, until `module_dump_end`.

        Raises UsageError when the name is not a text with at least one character.
        """
        if not isinstance(name, str) or not name:
            raise UsageError(f"module_dump wants a name for the module; got {brief(name)}.")
        self._named = (module, name)
        if self.run is not None and self.run.running:
            self.run.pause()
            self.run.table.add_named(module, name)
            self.run.resume(None, self.run.gate)

    def module_dump_end(self) -> None:
        """End `module_dump`. Raises UsageError when none is open."""
        if self._named is None:
            raise UsageError("module_dump_end() was called, but no module_dump(module, name) is open.")
        if self.run is not None:
            self.run.table.entries.pop(id(self._named[0]), None)
        self._named = None

    @_in_turn
    def close(self) -> None:
        """Finish the step that is open, and remove every hook. More calls do nothing."""
        if self.closed:
            return
        self.closed = True
        self.unready()
        run, self.run = self.run, None
        if run is not None:
            report = None
            with self._guarded(run, "close()"):
                report = run.end()
            self._over(run, report)
        if self.when is not None:
            self.when.close()
        self._earlier.tell()
        self._claim.release()
        if self.exporter is not None:
            self.exporter.close()
        _live.discard(self)

    @contextlib.contextmanager
    def _guarded(self, run: RunningStep, where: str) -> Iterator[None]:
        """Turn a fault of Probe into a warning: it ends the dump of this step, never the run.

        An error that a signal's handler raises meanwhile ends the dump as well, but is raised on into the run.
        """
        try:
            yield
        except ProbeError:
            raise
        except Exception as e:
            self.run = None
            self._skip_step = self.step_number
            with contextlib.suppress(Exception):
                run.abandon()
            notice(
                f"Probe: the dump of step {self.step_number} ended in {where}: "
                f"{reason(e, self.config.dump_path, _brief_trace(e))} The run goes on; {remains(run.directory)}."
            )
            self._ended_early = run
            if from_signal(e):
                raise

    # -- inside ---------------------------------------------------------------------------------------

    def _take(self, config: Config, opened: Opened) -> None:
        self.config, self._opened = config, opened
        self._budget.take(config)
        if self.when is not None:
            self.when.take(config, self._budget.ring)

    def _begin(self, model: Any) -> RunningStep | None:
        rank, about, opened = self._rank(), self.about, self._opened
        if (raised := self._raised(self.step_number)) is not None:
            opened, about = raised.opened(self.patches), {**about, **raised.cause_of(self.step_number)}
        base, open_step = opened.target_for(self.config.dump_path, model)
        try:
            allowance = self._budget.begin() if self._is_counted else None
            if self._is_counted and allowance is None:
                self._skip_step = self.step_number
                return None
            directory = self._claim.take(base, self.step_number, rank)
            if directory.name.startswith("proc"):
                self._warn_once(
                    f"another process writes this rank's folders in {base}; the steps of this one are in "
                    f"{directory.name}. Give each process its own rank, or its own dump_path."
                )
            if self.exporter is not None:
                self.exporter.begin(directory.name)
                about = {**about, "export": self.exporter.address}
            if self.config.overwrite:
                self._earlier.reach(base, directory, rank)
                clear(directory)
            if self.config.overwrite or not holds_data(directory):
                run = open_step(directory, {"rank": rank, "step": self.step_number, **about})
                if allowance is not None:
                    self._allowance = allowance
                    run.limit(allowance)
                if self.when is not None:
                    run.watch_for(self.when.moments)
                return run
            notice(
                f"Probe: {directory} holds earlier data, so step {self.step_number} is not dumped. Give another "
                "dump_path, or set overwrite=True."
            )
        except unsignalled(OSError) as e:
            notice(f"Probe: Step {self.step_number} is not dumped: {explain(e, base)}")
        self._skip_step = self.step_number
        self._claim.rest()
        return None

    def _over(self, run: RunningStep | None, report: Mapping[str, Any] | None) -> None:
        """Tell the budget, the triggers or the ring of kept steps, and the export that a step is over.

        run: None where the step was not dumped.
        """
        run, self._ended_early = run or self._ended_early, None
        allowance, self._allowance = self._allowance, None
        if allowance is not None and run is not None:
            self._budget.ended(allowance, run.directories)
        if self.when is not None:
            self.when.ended(self.step_number, self._rank(), {} if run is None else run.looks, report)
        elif self._budget.ring is not None and run is not None:
            self._budget.ring.ended(run.directories, self.step_number)
        self._budget.settle()
        if self.exporter is not None:
            self.exporter.tell(*map(os.fsencode, () if run is None else run.directories))

    def _check_model(self, model: Any, tokens: Any) -> None:
        has_one = self._named is not None or (self.run is not None and bool(self.run.table.entries))
        if model is None and self.config.level in ("L0", "mix") and not has_one:
            raise UsageError(self._wants_model())
        if tokens is not None and model is None:
            raise UsageError(
                "token_range counts calls of the model, so it needs one: start(model=..., token_range=...)."
            )

    def _wants_model(self) -> str:
        """Return the message for a user who gave no model where one is needed."""
        return (
            f"level {self.config.level} records {self.framework.modules}, so it needs the model: start(model=...) "
            "or PrecisionDebugger(model=...). Level L1 works without."
        )

    def _takes(self, number: int) -> bool:
        """Return whether a step is to be dumped, as far as its number says."""
        wanted = self.config.wants_step(number) or self._raised(number) is not None
        return wanted and self.config.dump_enable is not False and self._skip_step != number

    def _raised(self, number: int) -> SessionTriggers | None:
        """Return the triggers if one of them has this step dumped; else None."""
        return self.when if self.when is not None and self.when.of(number) is not None else None

    @property
    def _is_counted(self) -> bool:
        """Return whether bytes are counted: there is a limit, or may be one later."""
        limits = self.config.max_bytes, self.config.min_free_bytes
        return self.reload is not None or limits != (None, None)

    def _processes(self) -> int:
        """Return how many processes of the run dump."""
        size = self.framework.world_size() or 1
        return sum(rank in self.config.rank for rank in range(size)) if self.config.rank else size

    def _rank(self) -> int | None:
        return self.framework.rank() if self._rank_id is None else self._rank_id


def _brief_trace(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-3:]
    at = " < ".join(f"{f.name} ({os.path.basename(f.filename)}:{f.lineno})" for f in reversed(last))
    return f"{error_text(error)} in {at}"


def _in_forked_child() -> None:
    """Record nothing in a child of fork() (a data loader's worker): it shares the journal's file."""
    for session in list(_live):
        if session.run is not None:
            session.run.mute()


os.register_at_fork(after_in_child=_in_forked_child)
