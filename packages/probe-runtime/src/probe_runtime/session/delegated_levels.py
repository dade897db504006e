"""Provide the sessions of the levels that other packages implement.

Level "debug" saves single values (probe-save), level "L2" the kernels of a graph or device (probe-kernel).
Neither records calls: no model is needed, no function is replaced, and there is no dump.json.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

from attrs import define, field
from probe_format.errors import ConfigError, Problem

from probe_runtime.config.config import Config
from probe_runtime.config.number_ranges import parse_init_step, parse_rank_id, parse_token_range

from .any_session import AnySession


class AnySaver(Protocol):
    """What level "debug" needs of `probe_save.Saver`."""

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a value and its gradient."""

    def step(self) -> None:
        """End the step."""

    def set_init_step(self, step: int) -> None:
        """Number the steps from ``step``."""

    def close(self) -> None:
        """Complete the open step."""


class AnyKernelRun(Protocol):
    """What level "L2" needs of the package that dumps kernels."""

    def prepare(self, step: int) -> None:
        """Get ready for ``step``. Called on a wanted rank before each start, whether the step is wanted or not."""

    def start(self, step: int) -> None:
        """Dump from now on. step: the number of the current step."""

    def stop(self) -> None:
        """Stop dumping."""

    def step(self) -> None:
        """End the step."""

    def close(self) -> None:
        """End dumping and warn or log what was written."""


def kernel_package() -> Any:
    """Return the module that does level "L2": the entry point ``L2`` in the group ``probe.levels``.

    Raises ConfigError when no package has this entry point, or when the module cannot be imported.
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


@define(eq=False)
class SavingSession(AnySession):
    """A session at level "debug": save() saves, step() ends a step, start() and stop() have no effect.

    saver: saves the values.
    """

    config: Config
    saver: AnySaver
    model: Any = None
    closed: bool = False

    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        """Check the arguments only."""
        self._refuse_closed("save more")
        parse_token_range(token_range)
        parse_rank_id(rank_id)

    def step(self) -> None:
        if not self.closed:
            self.saver.step()

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a value and its gradient. Return the value. Raises UsageError when the session is closed."""
        self._refuse_closed("save more")
        return self.saver.save(variable, name, save_backward)

    def set_init_step(self, step: Any) -> None:
        self.saver.set_init_step(step)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.saver.close()


@define(eq=False)
class KernelSession(AnySession):
    """A session at level "L2": kernels are dumped between start() and stop() of the wanted steps and ranks.

    kernels: dumps the kernels.
    rank: returns this process's rank, None when not distributed.
    step_number: the number of the current step.
    """

    config: Config
    kernels: AnyKernelRun
    rank: Callable[[], int | None]
    model: Any = None
    closed: bool = False
    step_number: int = 0
    _running: bool = field(default=False, init=False)
    _rank_id: int | None = field(default=None, init=False)

    @property
    def collecting(self) -> bool:
        return self._running

    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        """Dump from now on, if this step and rank are wanted."""
        self._refuse_closed()
        parse_token_range(token_range)
        self._rank_id = parse_rank_id(rank_id, self._rank_id)
        rank = self.rank() if self._rank_id is None else self._rank_id
        if self._running or not self.config.wants_rank(rank):
            return
        # MindSpore reads its settings once, when step 0 compiles: they must be there also where only step 5 is dumped.
        self.kernels.prepare(self.step_number)
        if self.config.wants_step(self.step_number):
            self.kernels.start(self.step_number)
            self._running = True

    def stop(self) -> None:
        if self._running:
            self._running = False
            self.kernels.stop()

    def step(self) -> None:
        self.stop()
        self.kernels.step()
        self.step_number += 1

    def set_init_step(self, step: Any) -> None:
        self.step_number = parse_init_step(step)

    def close(self) -> None:
        """End dumping. More calls do nothing."""
        if not self.closed:
            self.closed = True
            self.stop()
            self.kernels.close()
