"""Control kernel-level (L2) dumps and read what they leave.

Nothing of that is here yet: this version holds the name and the version number, so that the packages of the
workspace can be built and installed side by side. Using any of the planned names raises a clear error.
"""

from typing import Never

from probe_format.errors import UsageError

__version__ = "0.1.0"

from .read import Dump, open

__all__ = ["Dump", "__version__", "open"]

_PLANNED = frozenset({"KernelDump", "mindspore", "torch"})


def __getattr__(name: str) -> Never:
    """Refuse the planned names in words, at the line that asks for them."""
    if name in _PLANNED:
        raise UsageError(
            f"probe_kernel.{name} does not exist yet: version {__version__} only holds the name. "
            "Until it is built, use the framework's own kernel dump (MINDSPORE_DUMP_CONFIG, "
            "torch_npu.npu.init_dump), or probe-torch at level L0, L1 or mix."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
