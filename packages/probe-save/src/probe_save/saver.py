"""Save named values and their gradients into a dump, step after step, with one configuration (level: debug)."""

import atexit
import contextlib
import multiprocessing
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from probe_format.errors import ConfigError, Problem, UsageError
from probe_format.excerpts import brief, error_text, from_signal, unsignalled
from probe_format.layout import ERRORS, existing_dump
from probe_format.write import Claim, clear, explain, reason, remains
from probe_runtime.config import AllSettings, Config, ConfigFile, load, parse_init_step, path_problem, resolve
from probe_runtime.describe import RunError
from probe_runtime.earlier_dump import EarlierDump
from probe_runtime.notice import log, notice

from .frameworks import current_rank, world_size
from .saved_step import SavedStep
from .uncompiled import uncompiled

T = TypeVar("T")

_live: "weakref.WeakSet[Saver]" = weakref.WeakSet()


class Saver:
    """Save values by name, with their gradients. Safe to use from many threads.

    config_path: a config.json or YAML file.
    settings: keys of the configuration, which override the file: task (``statistics`` or ``tensor``), dump_path, rank
        and step (numbers and ranges, ``[0, "4-6"]``), summary_mode (``statistics``, ``md5`` or ``xor``), overwrite,
        and others, such as zero_count.

    closed: whether `close` was called.

    As a context manager it is closed at the end of the block, else at exit. Raises ConfigError with every problem at
    once.
    """

    def __init__(self, config_path: str | Path | None = None, **settings: Unpack[AllSettings]) -> None:
        from . import __version__

        config = _resolved(config_path, **settings)
        rank = current_rank()
        if (problem := path_problem(config, rank, lambda: _earlier(config, rank))) is not None:
            raise ConfigError([problem])
        self._begin(config, f"probe-save {__version__}", None)

    @classmethod
    def of(cls, config: Config, tool: str, framework: str | None = None) -> Self:
        """Return a saver for a configuration that was checked before.

        tool: name and version of the program, for the header of debug.json.
        framework: for that header; None where the first value decides.
        """
        saver = cls.__new__(cls)
        saver._begin(config, tool, framework)
        return saver

    def _begin(self, config: Config, tool: str, framework: str | None) -> None:
        self.config = config
        self.step_number = 0
        self._tool = tool
        self._framework = framework
        self._child = multiprocessing.parent_process() is not None
        self._claim = Claim(config.dump_path)
        self._earlier = EarlierDump(world_size)
        self.closed = False
        self._run: SavedStep | None = None
        self._skip_step: int | None = None
        self._lock = threading.RLock()
        self._opening = False
        self._too_soon = 0
        _live.add(self)

    def save(self, variable: T, name: str, save_backward: bool = True) -> T:
        """Save ``variable`` as ``{name}.{n}.debug``, n counting the values of that name in this step. Return it.

        variable: a tensor or array of any shape, a number, text, None; lists, tuples, dicts and dataclasses of these.
        save_backward: whether to record the gradient of each tensor in it too, when a backward pass comes.

        When this returns, the value survives the death of the process. Raises UsageError when ``name`` is not a text
        with at least one character, and when the package for a tensor's framework is not installed.
        """
        if not isinstance(name, str) or not name:
            raise UsageError(f"save wants a name for the value, as save(x, 'logits'); got {brief(name)}.")
        uncompiled(self._record, variable, str.__str__(name), bool(save_backward))
        return variable

    def step(self) -> None:
        """End the training step: complete its files, and count values from 0 again.

        Call it after the backward pass, as gradients that come later are not recorded.
        """
        with self._lock:
            self._check_open()
            if self._is_too_soon("step()"):
                return
            run, self._run = self._run, None
            number = self.step_number
            self._claim.rest()
            self.step_number += 1
            self._skip_step = None
        if run is not None:
            self._end(run, number)

    def set_init_step(self, step: int) -> None:
        """Number the steps from ``step``, as when a run resumes from a checkpoint.

        Raises UsageError when it is not a whole number from 0 up, and after the first save() of a step.
        """
        first = parse_init_step(step)
        if self._run is not None:
            raise UsageError("set_init_step must be called before the first save().")
        self.step_number = first

    def close(self) -> None:
        """Complete the open step. More calls do nothing. Also done at exit."""
        with self._lock:
            if self._is_too_soon("close()"):
                return
            self.closed = True
            run, self._run = self._run, None
        if run is not None:
            self._end(run, self.step_number)
        self._earlier.tell()
        self._claim.release()
        _live.discard(self)

    @property
    def directory(self) -> Path | None:
        """Return the folder of the current step; None before its first value."""
        return None if self._run is None else self._run.directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- inside ---------------------------------------------------------------------------------------

    def _record(self, variable: Any, name: str, backward: bool) -> None:
        while (run := self._current()) is not None:
            if run.enter():
                try:
                    run.save(variable, name, backward=backward)
                except RunError as e:
                    raise e.error from e
                finally:
                    run.leave()
                break

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("This Saver is closed. Make a new one, or call configure(), to save more.")

    def _current(self) -> SavedStep | None:
        """Return the step being saved; None when this step or rank is not wanted, or cannot be written."""
        run = self._run
        if run is not None:
            return run if run.alive else None
        with self._lock:
            self._check_open()
            wanted = self.config.wants_step(self.step_number) and self._skip_step != self.step_number
            if self._run is None and wanted and self.config.wants_rank(current_rank()):
                if self._is_too_soon("save()"):
                    self._too_soon += 1
                    return None
                self._opening = True
                try:
                    self._run = self._open()
                finally:
                    self._opening = False
                    missed, self._too_soon = self._too_soon, 0
                if missed and self._run is not None:
                    why = "values that a signal handler saved as the step was opened"
                    self._run.values.journal.coverage.add("left_out", why, missed)
            return self._run

    def _is_too_soon(self, what: str) -> bool:
        """Return whether this is a signal handler's call in the thread that is opening a step, and warn of it.

        The handler can neither wait until the step is open nor open it.
        """
        if self._opening:
            notice(
                f"Probe: {what} in a signal handler has no effect while save() opens step {self.step_number}."
            )
        return self._opening

    def _open(self) -> SavedStep | None:
        config, step, rank = self.config, self.step_number, current_rank()
        try:
            new, about = not config.overwrite, {"tool": self._tool, "rank": rank, "step": step}
            place = self._claim.take(config.dump_path, step, rank, child=self._child, new=new)
            if config.overwrite:
                self._earlier.reach(config.dump_path, place, rank)
                clear(place)
            run = SavedStep.begin(config, place, self._framework, about)
        except unsignalled(OSError) as error:
            self._claim.rest()
            self._skip_step = step
            notice(f"Probe: step {step} is not saved: {explain(error, config.dump_path)} The run goes on.")
            return None
        if place.name.startswith("proc") and not self._child:
            log("probe_save", f"another process holds the directory of this rank; saving to {place}")
        return run

    def _end(self, run: SavedStep, number: int) -> None:
        try:
            report = run.end()
        except Exception as error:
            with contextlib.suppress(Exception):
                run.abandon()
            why = reason(error, run.directory, error_text(error))
            notice(f"Probe: step {number} ended early: {why} The run goes on; {remains(run.directory)}.")
            if from_signal(error):
                raise
            return
        if report is None:
            return
        log("probe_save", f"step {number} is saved: {report['records']} records in {run.directory}")
        failed = report["counts"].get("failed", {}).get("values", 0)
        if failed:
            notice(f"Probe: {failed} values could not be saved as they are; see {run.directory / ERRORS}.")

    def _in_forked_child(self) -> None:
        run, self._run = self._run, None
        self._lock = threading.RLock()  # in the parent, another thread may have held the old one
        self._opening = False
        self._child = True
        self._earlier = EarlierDump(world_size)  # what it found, the parent tells
        if run is not None:
            run.disown()


@atexit.register
def _at_exit() -> None:
    for saver in list(_live):
        saver.close()


def _after_fork() -> None:
    for saver in list(_live):
        saver._in_forked_child()


os.register_at_fork(after_in_child=_after_fork)


_LEVEL = 'Write "debug" or leave it out here; levels L0, L1 and mix are PrecisionDebugger\'s (probe-torch).'


def _resolved(config_path: str | Path | None, **arguments: Any) -> Config:
    """Return the configuration of a file (JSON or YAML) and of arguments, which override the file.

    Raises ConfigError with every problem at once.
    """
    file: Mapping[str, Any] = {} if config_path is None else load(config_path)
    where = file.place("level") if isinstance(file, ConfigFile) else "level"
    levels = (where, file.get("level")), ("argument level", arguments.get("level"))
    wrong = [(where, level) for where, level in levels if level is not None and level != "debug"]
    problems = [Problem(where, f"{brief(level)} is not single-point save.", _LEVEL) for where, level in wrong]
    try:
        config = resolve(file, **{**arguments, "level": "debug"})
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    for text in config.warnings:
        notice(f"Probe: {text}")
    if config.async_dump:
        notice("Probe: async_dump: a value is on disk when save() returns, so async_dump has no effect.")
    return config


def _earlier(config: Config, rank: int | None) -> tuple[Path, ...]:
    if rank is None and multiprocessing.parent_process() is not None:
        return ()  # it writes beside the process that started it
    return existing_dump(config.dump_path, rank, config.step)
