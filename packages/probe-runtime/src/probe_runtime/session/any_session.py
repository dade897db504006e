"""Describe what a debugger needs of its session, whatever its level."""

from typing import Any, Protocol

from probe_runtime.config.config import Config


class AnySession(Protocol):
    """What a debugger calls: `session.Session`, or a session of another level in `delegated_levels`."""

    config: Config
    model: Any
    closed: bool

    @property
    def patches(self) -> Any:
        """Return the patched functions, which have ``add`` and ``remove``."""

    @property
    def collecting(self) -> bool:
        """Return whether calls are being collected now."""

    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        """Start or resume collecting in the current step."""

    def stop(self) -> None:
        """Stop collecting."""

    def step(self) -> None:
        """End the step."""

    def save(self, variable: Any, name: str, save_backward: bool = True) -> Any:
        """Save a single value."""

    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run, for the conditions under `when`."""

    def set_init_step(self, step: Any) -> None:
        """Number the steps from ``step``."""

    def close(self) -> None:
        """Finish the open step and remove every hook."""
