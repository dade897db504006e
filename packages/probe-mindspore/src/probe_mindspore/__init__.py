"""See every number that a MindSpore step computed, without changing it.

Nothing of that is here yet: this version holds the name and the version number, so that the packages of the
workspace can be built and installed side by side. Using any of the planned names raises a clear error.
"""

from typing import Never

from probe_format.errors import UsageError

__version__ = "0.1.0"
__all__ = ["__version__"]

_PLANNED = frozenset(
    {"MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "ProbeInitStep", "ProbeStep", "seed_all"}
)


def __getattr__(name: str) -> Never:
    """Refuse the planned names in words, at the line that asks for them."""
    if name in _PLANNED:
        raise UsageError(
            f"probe_mindspore.{name} does not exist yet: version {__version__} only holds the name. "
            "Until it is built, dump with msprobe (`from msprobe.mindspore import PrecisionDebugger`) "
            "and read its dumps with probe_format.open(path) or `probe show DIR`."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
