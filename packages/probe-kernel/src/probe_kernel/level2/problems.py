"""Find what is wrong with a configuration at level L2, whatever the framework."""

from __future__ import annotations

from probe_format.errors import Problem
from probe_runtime.config import Config


def common_problems(config: Config) -> list[Problem]:
    """Return the keys that have no meaning at level L2, whatever the framework."""
    what = "is not for level L2."
    remedies = {"scope": "and choose with list.", "tensor_list": 'and write task "tensor".'}
    return [Problem(k, what, f"Leave it empty, {v}") for k, v in remedies.items() if getattr(config, k)]
