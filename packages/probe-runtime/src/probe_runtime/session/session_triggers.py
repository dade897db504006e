"""Dump the steps after a trigger as `then` says: at another level or with another task than the session's."""

from contextlib import ExitStack
from typing import Any, Self

from attrs import define, field

from probe_runtime.config.config import Config
from probe_runtime.patching.patches import Patches
from probe_runtime.watch import Ring, Triggers

from .framework import Framework, Opened


@define(eq=False)
class SessionTriggers:
    """Open the steps of a session that are dumped because of a trigger.

    triggers: says which steps these are, and with which configuration they are dumped.
    framework: of the session.
    """

    triggers: Triggers
    framework: Framework
    _ready: Opened | None = None
    _open: ExitStack = field(factory=ExitStack)

    @classmethod
    def of(cls, config: Config, framework: Framework) -> Self | None:
        """Return the triggers that a configuration asks for; None where it has no conditions (`when`).

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
        self._ready = None

    def dumps(self, number: int) -> bool:
        """Return whether a step is dumped because of a trigger."""
        return self.triggers.of(number) is not None

    def opens(self, number: int, patches: Patches) -> tuple[Opened, dict[str, Any]]:
        """Return what opens a step that is dumped because of a trigger, and what its header says of the trigger.

        patches: those of the session; functions that the user registered with them are recorded here too.
        """
        trigger = self.triggers.of(number)
        assert trigger is not None
        return self._opened(patches), trigger.cause

    def patches_at(self, number: int, patches: Patches) -> Patches:
        """Return the patched functions of a step. patches: those of the session."""
        return self._opened(patches).patches if self.dumps(number) else patches

    def close(self) -> None:
        """Judge no more steps, and leave the run's loss scalers alone."""
        self.triggers.close()
        self._open.close()

    def _opened(self, patches: Patches) -> Opened:
        if self._ready is None:
            self._ready = self.framework.opened(self.triggers.config)
        self._ready.patches.register_those_of(patches)
        return self._ready
