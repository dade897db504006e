"""Find what is wrong with a configuration at level L2, whatever the framework."""

from __future__ import annotations

from probe_format.errors import Problem
from probe_runtime.config import Config

__all__ = ["common_problems"]


def common_problems(config: Config) -> list[Problem]:
    """Return the keys that have no meaning at level L2, whatever the framework."""
    found = []
    if config.scope:
        found.append(Problem("scope", "is not for level L2.", "Leave it empty, and choose with list."))
    if config.tensor_list:
        found.append(
            Problem("tensor_list", "is not for level L2.", 'Leave it empty, and write task "tensor".')
        )
    return found
