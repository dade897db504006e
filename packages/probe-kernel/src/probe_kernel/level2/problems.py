"""Find what is wrong with a configuration at level L2, whatever the framework."""

from __future__ import annotations

from probe_format.errors import Problem
from probe_runtime.config import Config

__all__ = ["common_problems"]


def common_problems(config: Config) -> list[Problem]:
    """Return the keys that have no meaning at level L2, whatever the framework."""
    remedies = {
        "scope": "Leave it empty, and choose with list.", "tensor_list": 'Leave it empty, and write task "tensor".',
    }  # fmt: skip
    return [
        Problem(key, "is not for level L2.", to_do) for key, to_do in remedies.items() if getattr(config, key)
    ]
