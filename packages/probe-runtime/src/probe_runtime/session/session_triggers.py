"""Tie a session's triggers, which judge its steps by the conditions of the configuration, to its framework.

The framework opens the steps that are dumped because a condition was met, and tells which updates of the parameters
its loss scalers skipped.
"""

from contextlib import ExitStack

from probe_runtime.config.config import Config
from probe_runtime.patching.patches import Patches
from probe_runtime.watch import Ring, Triggers

from .framework import Framework, Opened


class SessionTriggers(Triggers):
    """The triggers of a session, which open the steps that are dumped because of one."""

    def __init__(self, config: Config, framework: Framework) -> None:
        """Judge steps from now on. Raises ConfigError when a function under `when` is not there."""
        self._framework = framework
        self._scalers = ExitStack()
        super().__init__(config)
        self._scalers.enter_context(framework.scalers(self.skipped))

    def take(self, config: Config, ring: Ring | None) -> None:
        super().take(config, ring)
        self._ready: Opened | None = None

    def opened(self, patches: Patches) -> Opened:
        """Return what opens such a step. patches: of the session, whose registered functions are recorded here too."""
        if self._ready is None:
            self._ready = self._framework.opened(self.config)
        self._ready.patches.register_those_of(patches)
        return self._ready

    def close(self) -> None:
        """Judge no more steps, and leave the run's loss scalers alone."""
        super().close()
        self._scalers.close()
