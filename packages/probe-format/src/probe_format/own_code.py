"""Tell Probe's own stack frames, and a framework's, from the user's.

Frames of Probe's own packages are left out of the recorded stacks; those of a framework are kept.
"""

from collections.abc import Sequence

OWN_MODULES = tuple(
    f"probe_{name}" for name in ("fast", "format", "runtime", "torch", "mindspore", "save", "kernel")
)
"""Frames of these packages are left out of recorded stacks, and no others."""

RUNNER = "probe_runtime.auto.script"
"""The module that runs a user's script."""

FRAMEWORKS = ("torch", "torch_npu", "mindspore", "mindtorch", "mindtorch_v2", "msadapter")
"""Packages between the user's line and Probe: their hooks and functions call it. Their frames are kept."""


def is_own(module: object, skip: Sequence[str] = OWN_MODULES) -> bool:
    """Return whether the module of this name belongs to one of these packages.

    module: the ``__name__`` of a frame's globals; a value that is not a string belongs to no package.
    """
    if not isinstance(module, str):
        return False
    package, _, rest = module.partition(".")
    # The demos stand for a user's script, so their frames count as the user's.
    return package in skip and rest.partition(".")[0] != "demo"
