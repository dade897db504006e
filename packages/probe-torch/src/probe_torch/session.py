"""What lives as long as a debugger: its configuration, where the step count is, the step being dumped."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from attrs import define, field
from probe_format.config import Config, check_rank
from probe_format.errors import ConfigError, ProbeError, Problem, UsageError
from probe_format.layout import check_writable, existing_dump, explain, rank_dir
from probe_format.ranges import parse_token_range
from probe_format.select import RankFilter, StepFilter
from torch import nn

from .aliasing import Aliasing
from .apis import Apis, load_apis
from .collector import Collector
from .guests import Guests
from .modules import Model
from .patches import Patches
from .ranks import current_rank, world_size
from .scopes import Scopes
from .step import DumpedStep, TokenGate
from .tensors import TensorLeaf
from .wrappers import Label

__all__ = ["Session"]

_log = logging.getLogger("probe_torch")
_live: weakref.WeakSet[Session] = weakref.WeakSet()


@define(eq=False, slots=False)
class Session:
    """One configuration at work. start and stop and step may be called in any order; misuse is told, once."""

    config: Config
    model: Model | None
    tool: str
    patches: Patches
    step_number: int = 0
    closed: bool = False
    run: DumpedStep | None = None
    _steps: StepFilter = field(init=False)
    _ranks: RankFilter = field(init=False)
    _named: tuple[nn.Module, str] | None = None
    _said: set[str] = field(factory=set)
    _skip_step: int | None = None

    def __attrs_post_init__(self) -> None:
        self._steps = StepFilter(self.config)
        self._ranks = RankFilter(self.config)
        _live.add(self)

    @classmethod
    def create(cls, config: Config, model: Model | None, tool: str) -> Session:
        """Check what can be checked before the run begins. Raises ConfigError with every problem."""
        problems = []
        if config.level == "debug":
            what = "level 'debug' (single-point save) is the job of the package probe-save."
            problems.append(Problem("level", what, "Use L0, L1 or mix here."))
        if config.level == "L2":
            what = "level 'L2' (kernels) is the job of the package probe-kernel."
            problems.append(Problem("level", what, "Use L0, L1 or mix here."))
        try:
            unwritable = check_writable(config.dump_path)
            used = [] if config.overwrite or unwritable else _used(config, current_rank())
        except OSError as e:
            unwritable, used = f"dump_path {config.dump_path}: {e.strerror}. Choose another dump_path.", []
        if unwritable is not None:
            problems.append(Problem("dump_path", unwritable))
        problems += used
        told = check_rank(config, world_size())
        if told is not None and world_size() is not None:
            problems.append(Problem("rank", told))
        if problems:
            raise ConfigError(problems)
        for text in config.warnings:
            _warn(text)
        if told is not None:
            _warn(told)
        return cls(config, model, tool, Patches(_listed(config), _Tap()))

    # -- the user's calls -----------------------------------------------------------------------------

    def start(self, model: Model | None, token_range: Any) -> None:
        """Begin, or go on, collecting the current step."""
        if self.closed:
            raise UsageError("This debugger is closed. Make a new PrecisionDebugger to dump more steps.")
        model = model if model is not None else self.model
        tokens = parse_token_range(token_range)
        self._check_model(model, tokens)
        if not self._steps(self.step_number) or self._skip_step == self.step_number:
            return
        if not self._ranks(current_rank()):
            return
        if self.run is not None and self.run.running:
            self._say_once(
                "start() was called twice: it is collecting already. stop() comes first; this call has no effect."
            )
            return
        if self.run is None:
            self.run = self._begin()
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
            if run.running:
                self._say_once("step() was called before stop(); collecting was stopped first.")
            with self._guarded(run, "step()"):
                report = run.end()
                if report is not None:
                    said = "step %d is dumped: %d records in %s"
                    _log.info(said, self.step_number, report["records"], run.directory)
        self.step_number += 1
        self._skip_step = None
        if run is not None and self._steps.over(self.step_number):
            _log.info("every step asked for is dumped, below %s", self.config.dump_path)

    def set_init_step(self, step: Any) -> None:
        """Count steps from ``step``, as when a run goes on from a checkpoint."""
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise UsageError(f"set_init_step wants a whole number from 0 up; got {step!r}.")
        if self.run is not None:
            raise UsageError(
                "set_init_step must be called before the first start(), outside the training loop."
            )
        self.step_number = step

    def module_dump(self, module: Any, name: Any) -> None:
        """Dump one module under a name, and nothing inside it, until `module_dump_end`."""
        if not isinstance(module, nn.Module):
            raise UsageError(f"module_dump wants a torch.nn.Module; got a {type(module).__name__}.")
        if not isinstance(name, str) or not name:
            raise UsageError(f"module_dump wants a name for the module; got {name!r}.")
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
    def _guarded(self, run: DumpedStep, where: str) -> Iterator[None]:
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
            _warn(
                f"a fault of its own in {where} ended the dump of step {self.step_number}; the run goes on, and "
                f"what was recorded is readable (`probe recover`). Please report it: {_brief_trace(e)}"
            )

    # -- inside ---------------------------------------------------------------------------------------

    def _begin(self) -> DumpedStep | None:
        directory = rank_dir(self.config.dump_path, self.step_number, current_rank())
        if not self.config.overwrite and existing_dump(
            self.config.dump_path, current_rank(), (self.step_number,)
        ):
            self._skip_step = self.step_number
            _warn(
                f"{directory} holds earlier data, so step {self.step_number} is not dumped. Give another dump_path."
            )
            return None
        try:
            if self.config.overwrite:
                _clear(directory)
            about = {"rank": current_rank(), "step": self.step_number}
            return DumpedStep.begin(self.config, directory, self._install, self.tool, about)
        except OSError as e:
            self._skip_step = self.step_number
            _warn(f"Step {self.step_number} is not dumped: {explain(e, directory)}")
            return None

    @contextlib.contextmanager
    def _install(
        self, collector: Collector, leaf: TensorLeaf, models: tuple[nn.Module, ...]
    ) -> Iterator[None]:
        """Everything that is in place while calls are collected."""
        with contextlib.ExitStack() as stack:
            _Tap.target = collector
            stack.callback(_Tap.clear)
            if self.config.level != "L0":  # at L0 no function is replaced, so nobody needs the originals back
                # First what comes and goes with the patches, so that early names are looked for once.
                stack.enter_context(Guests(self.patches))
                regions = stack.enter_context(Scopes(self.patches, collector.push, collector.pop))
                stack.callback(_count_quiet, collector, regions)
                self.patches.apply(*models)
                stack.callback(self.patches.undo)
            stack.enter_context(Aliasing(leaf.touched))
            for missing, why in self.patches.missing.items():
                collector.coverage.missing.setdefault(missing, why)
            yield

    def _check_model(self, model: Model | None, tokens: Any) -> None:
        if (
            model is None
            and self.config.level in ("L0", "mix")
            and self._named is None
            and not self._has_model()
        ):
            raise UsageError(
                f"level {self.config.level} records modules, so it needs the model: start(model=...) "
                "or PrecisionDebugger(model=...). Level L1 works without."
            )
        if tokens is not None and model is None:
            raise UsageError(
                "token_range counts calls of the model, so it needs one: start(model=..., token_range=...)."
            )

    def _has_model(self) -> bool:
        return self.run is not None and bool(self.run.table.entries)

    def _wanted(self) -> bool:
        return self._steps(self.step_number) and self._ranks(current_rank()) and self._skip_step is None

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _warn(text)


def _brief_trace(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-3:]
    at = " < ".join(f"{f.name} ({os.path.basename(f.filename)}:{f.lineno})" for f in reversed(last))
    return f"{type(error).__name__}: {error} in {at}"


class _Tap:
    """The tap that the patched functions hold for good; ``target`` is the collector of the moment."""

    target: Collector | None = None

    def __call__(self, label: Label, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        collector = _Tap.target
        if collector is None:
            return original(*args, **kwargs)
        return collector.api(label.name, original, args, kwargs, composite=label.composite)

    @classmethod
    def clear(cls) -> None:
        cls.target = None


def _count_quiet(collector: Collector, regions: Scopes) -> None:
    for reason, times in regions.quiet.items():
        collector.coverage.add("left_out", reason, times)


def _listed(config: Config) -> Apis:
    """The functions to patch: none at L0, where only modules are recorded."""
    if config.level == "L0":
        return Apis(())
    return load_apis(config.apis, views=config.views, risk_level=config.risk_level)


def _used(config: Config, rank: int | None) -> list[Problem]:
    """Whether earlier data would be overwritten."""
    found = existing_dump(config.dump_path, rank, config.step)
    if not found:
        return []
    which = ", ".join(p.parent.name for p in found[:4]) + (" and more" if len(found) > 4 else "")
    return [
        Problem(
            "dump_path",
            f"{config.dump_path} already holds a dump ({which}), which is left as it is.",
            "Give another dump_path, move the old one away, or set overwrite: true.",
        )
    ]


def _clear(directory: Any) -> None:
    """Remove an earlier dump (`overwrite`): its own files only, so that no stale tensor file stays."""
    for name in (
        "dump.json",
        "stack.json",
        "construct.json",
        "report.json",
        "records.journal",
        "dump_error_info.log",
    ):
        (directory / name).unlink(missing_ok=True)
    tensors = directory / "dump_tensor_data"
    if tensors.is_dir():
        for path in tensors.iterdir():
            if path.suffix in (".pt", ".npy"):
                path.unlink()


def _warn(text: str) -> None:
    warnings.warn(f"Probe: {text}", RuntimeWarning, stacklevel=4)


def _in_forked_child() -> None:
    """A child of fork() (a DataLoader worker) shares the journal's file: it must record nothing."""
    for session in list(_live):
        if session.run is not None:
            session.run.collector.on = session.run.collector.alive = False


os.register_at_fork(after_in_child=_in_forked_child)
