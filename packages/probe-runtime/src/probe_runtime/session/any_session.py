"""Define the methods that a debugger calls on its session, whatever the level; most of them do nothing here."""

from typing import Any

from probe_format.errors import UsageError

from probe_runtime.config.config import Config


class AnySession:
    """A session as a debugger calls it. Here are the methods of a level that records no calls: most do nothing.

    config: the configuration.
    model: the debugger's model, or None.
    closed: whether close() was called.
    """

    config: Config
    model: Any
    closed: bool

    @property
    def patches(self) -> Any:
        """Return the patched functions, which have ``add`` and ``remove``. Raises UsageError at a level without any."""
        raise UsageError(
            f"level {self.config.level} records no functions: register_custom_api and restore_custom_api are for L1 "
            "and mix."
        )

    @property
    def collecting(self) -> bool:
        """Return whether the session is between start() and stop(), on a wanted step and rank."""
        return False

    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        """Start or resume collecting in the current step. Raises UsageError for a wrong argument, and after close()."""

    def stop(self) -> None:
        """Stop collecting."""

    def step(self) -> None:
        """End the step."""

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a single value. Return it."""
        return variable

    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run, for the conditions under `when`."""

    def set_init_step(self, step: Any) -> None:
        """Number the steps from ``step``. Raises UsageError when it is not a whole number from 0 up."""

    def close(self) -> None:
        """Finish the open step and remove every hook. More calls do nothing."""

    def _refuse_closed(self, why: str = "dump more steps") -> None:
        if self.closed:
            raise UsageError(f"This debugger is closed. Make a new PrecisionDebugger to {why}.")
