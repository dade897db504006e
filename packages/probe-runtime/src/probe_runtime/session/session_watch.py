"""Bring the triggers of a session together with what its framework can do: dump a step at another level."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from attrs import define, field

from probe_runtime.config.config import Config
from probe_runtime.watch import Ring, Triggers

from .framework import Framework, TargetFor


@define(eq=False)
class SessionWatch:
    """The triggers of one session.

    triggers: says which steps stay, and which are dumped because of another.
    framework: of the session.
    """

    triggers: Triggers
    framework: Framework
    _raised: tuple[Any, TargetFor] | None = None
    _open: ExitStack = field(factory=ExitStack)

    @classmethod
    def of(cls, config: Config, ring: Ring | None, framework: Framework) -> Self | None:
        """Return those that a configuration asks for; None where it has no conditions.

        Raises ConfigError when a function under `when` is not there.
        """
        if not config.when:
            return None
        made = cls(Triggers(config, ring), framework)
        made._open.enter_context(framework.scalers(made.triggers.skipped))
        return made

    def raises(self, number: int) -> bool:
        """Return whether a step is dumped because of a trigger."""
        return self.framework.with_config is not None and self.triggers.of(number) is not None

    def opens(self, number: int, patches: Any) -> tuple[TargetFor, dict[str, Any]]:
        """Return what opens a step that is dumped because of a trigger, and what its header has of that.

        patches: those of the session, of which the user's own functions are taken over.
        """
        trigger = self.triggers.of(number)
        assert trigger is not None
        own, target_for = self._steps()
        own.register_those_of(patches)
        return target_for, trigger.cause

    def patches_at(self, number: int, patches: Any) -> Any:
        """Return the patched functions of a step. patches: those of the session."""
        if not self.raises(number):
            return patches
        own, _ = self._steps()
        own.register_those_of(patches)
        return own

    def close(self) -> None:
        """Let go of what was taken when it began."""
        self.triggers.close()
        self._open.close()

    def _steps(self) -> tuple[Any, TargetFor]:
        if self._raised is None:
            assert self.framework.with_config is not None
            self._raised = self.framework.with_config(self.triggers.config)
        return self._raised
