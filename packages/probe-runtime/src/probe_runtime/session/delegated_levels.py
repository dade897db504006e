"""The levels that are another package's job: what a debugger's session is there.

Level "debug" saves single values (probe-save), level "L2" the kernels of a graph or device (probe-kernel).
Neither records calls: no model is needed, no function is replaced, and there is no dump.json.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, NoReturn, Protocol

from attrs import define, field
from probe_format.errors import ConfigError, Problem, UsageError

from probe_runtime.config.config import Config
from probe_runtime.config.number_ranges import parse_init_step, parse_token_range
from probe_runtime.select.filters import RankFilter, StepFilter

__all__ = ["KernelRun", "KernelSession", "Saver", "SavingSession", "kernel_package"]


class Saver(Protocol):
    """What `probe_save.Saver` does."""

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a value and its gradient."""

    def step(self) -> None:
        """The step is over."""

    def set_init_step(self, step: int) -> None:
        """Count from here."""

    def close(self) -> None:
        """Complete what is open."""


class KernelRun(Protocol):
    """What `probe_kernel.level2` gives."""

    def prepare(self, step: int) -> None:
        """A wanted rank begins, whether its step is wanted or not; called before each start."""

    def start(self, step: int) -> None:
        """Dump from here on."""

    def stop(self) -> None:
        """Dump no more."""

    def step(self) -> None:
        """The step is over."""

    def close(self) -> None:
        """Dumping is over: say what was written."""


def kernel_package() -> Any:
    """Return the module that does level "L2": the entry point of that name in the group ``probe.levels``.

    Raises ConfigError where no package has one, or where it cannot be imported.
    """
    try:
        for entry in entry_points(group="probe.levels", name="L2"):
            return entry.load()
        raise ModuleNotFoundError("no installed package has it")
    except ImportError as e:
        what = f"level 'L2' dumps kernels, which is the job of probe-kernel, and that cannot be imported here ({e})."
        raise ConfigError(
            [Problem("level", what, "`pip install probe-kernel`, or use L0, L1 or mix.")]
        ) from e


@define
class _NoFunctions:
    """Stands for the patched functions where none are."""

    level: str

    def add(self, module: Any, api_name: str, prefix: str | None = None) -> NoReturn:
        """Refused."""
        raise UsageError(f"level {self.level} records no functions: register_custom_api is for L1 and mix.")

    def remove(self, module: Any, api_name: str) -> NoReturn:
        """Refused."""
        raise UsageError(f"level {self.level} records no functions: restore_custom_api is for L1 and mix.")


@define(eq=False)
class SavingSession:
    """A session at level "debug": save() saves, step() ends a step; start() and stop() have no effect."""

    config: Config
    saver: Saver
    model: Any = None
    closed: bool = False

    @property
    def patches(self) -> _NoFunctions:
        """No functions are recorded."""
        return _NoFunctions(self.config.level)

    @property
    def collecting(self) -> bool:
        """Never: values are saved one by one."""
        return False

    def start(self, model: Any, token_range: Any) -> None:
        """Without effect, as the values are saved where the script says so."""
        if self.closed:
            raise UsageError("This debugger is closed. Make a new PrecisionDebugger to save more.")
        parse_token_range(token_range)

    def stop(self) -> None:
        """Without effect."""

    def step(self) -> None:
        """The step is over: its files are complete."""
        if not self.closed:
            self.saver.step()

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a value and its gradient; gives the value back."""
        if self.closed:
            raise UsageError("This debugger is closed. Make a new PrecisionDebugger to save more.")
        return self.saver.save(variable, name, save_backward)

    def set_init_step(self, step: Any) -> None:
        """Count steps from ``step``."""
        self.saver.set_init_step(step)

    def close(self) -> None:
        """Complete the open step. More calls do nothing."""
        if not self.closed:
            self.closed = True
            self.saver.close()


@define(eq=False)
class KernelSession:
    """A session at level "L2": kernels are dumped between start() and stop() of the wanted steps and ranks."""

    config: Config
    kernels: KernelRun
    rank: Callable[[], int | None]
    model: Any = None
    closed: bool = False
    step_number: int = 0
    _running: bool = field(default=False, init=False)

    @property
    def patches(self) -> _NoFunctions:
        """No functions are recorded."""
        return _NoFunctions(self.config.level)

    @property
    def collecting(self) -> bool:
        """Between start() and stop(), on a step and rank that are wanted."""
        return self._running

    def start(self, model: Any, token_range: Any) -> None:
        """Dump from here on, if this step and rank are wanted."""
        if self.closed:
            raise UsageError("This debugger is closed. Make a new PrecisionDebugger to dump more steps.")
        parse_token_range(token_range)
        if self._running or not RankFilter(self.config)(self.rank()):
            return
        # MindSpore reads its settings once: they must be there when step 0 compiles, also for step 5 alone.
        self.kernels.prepare(self.step_number)
        if StepFilter(self.config)(self.step_number):
            self.kernels.start(self.step_number)
            self._running = True

    def stop(self) -> None:
        """Dump no more."""
        if self._running:
            self._running = False
            self.kernels.stop()

    def step(self) -> None:
        """The step is over."""
        self.stop()
        self.kernels.step()
        self.step_number += 1

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Without effect at this level; gives the value back."""
        return variable

    def set_init_step(self, step: Any) -> None:
        """Count steps from ``step``."""
        self.step_number = parse_init_step(step)

    def close(self) -> None:
        """Dumping is over. More calls do nothing."""
        if not self.closed:
            self.closed = True
            self.stop()
            self.kernels.close()
