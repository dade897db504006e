"""Bring the triggers of a session together with what its framework can do: dump a step at another level."""

from contextlib import ExitStack
from typing import Any, Self

from attrs import define, field

from probe_runtime.config.config import Config
from probe_runtime.patching.patches import Patches
from probe_runtime.watch import Ring, Triggers

from .framework import Framework, Opened


@define(eq=False)
class SessionTriggers:
    """The triggers of one session.

    triggers: says which steps stay, and which are dumped because of another.
    framework: of the session.
    """

    triggers: Triggers
    framework: Framework
    _raised: Opened | None = None
    _open: ExitStack = field(factory=ExitStack)

    @classmethod
    def of(cls, config: Config, framework: Framework) -> Self | None:
        """Return those that a configuration asks for; None where it has no conditions.

        Raises ConfigError when a function under `when` is not there.
        """
        if not config.when:
            return None
        made = cls(Triggers(config), framework)
        made._open.enter_context(framework.scalers(made.triggers.skipped))
        return made

    def take(self, config: Config, ring: Ring | None) -> None:
        """Go by another configuration from the next step on; its conditions are the same. ring: that of the session."""
        self.triggers.take(config, ring)
        self._raised = None

    def raises(self, number: int) -> bool:
        """Return whether a step is dumped because of a trigger."""
        return self.triggers.of(number) is not None

    def opens(self, number: int, patches: Patches) -> tuple[Opened, dict[str, Any]]:
        """Return what opens a step that is dumped because of a trigger, and what its header has of that.

        patches: those of the session, of which the user's own functions are taken over.
        """
        trigger = self.triggers.of(number)
        assert trigger is not None
        return self._opened(patches), trigger.cause

    def patches_at(self, number: int, patches: Patches) -> Patches:
        """Return the patched functions of a step. patches: those of the session."""
        return self._opened(patches).patches if self.raises(number) else patches

    def close(self) -> None:
        """Let go of what was taken when it began."""
        self.triggers.close()
        self._open.close()

    def _opened(self, patches: Patches) -> Opened:
        if self._raised is None:
            self._raised = self.framework.opened(self.triggers.config)
        self._raised.patches.register_those_of(patches)
        return self._raised
