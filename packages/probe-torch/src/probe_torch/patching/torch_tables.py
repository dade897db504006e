"""Have torch fill the caches that it keys by its functions before Probe's wrappers replace these functions."""

import functools
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from probe_format.excerpts import unsignalled

# Tables that torch makes at first use, keyed by its functions. Made while patches are in place they would
# hold our wrappers and, for the rest of the process, not the functions: torch.set_default_device would be
# ignored, torch.compile would break the graph at every call. (module, dotted name of a cached function
# without arguments).
_TABLES = (
    ("torch.utils._device", "_device_constructors"),
    ("torch.overrides", "get_ignored_functions"),
    ("torch.overrides", "get_default_nowrap_functions"),
    ("torch.overrides", "get_testing_overrides"),
    ("torch.overrides", "_get_overridable_functions"),
    ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"),
    ("torch._dynamo.trace_rules", "get_tensor_method"),
    ("torch._dynamo.variables.torch", "get_overridable_functions"),
    ("torch._dynamo.variables.torch", "tracing_state_functions"),
    ("torch._dynamo.variables.torch", "TorchInGraphFunctionVariable._get_handlers"),
    ("torch._dynamo.variables.builder", "VariableBuilder._id_dispatch"),
)


def fill_caches() -> None:
    """Fill the tables of the modules that are imported. Call with nothing patched.

    Takes some 10 ms the first time, and no time later unless torch has emptied them (torch.compiler.reset). A table
    that is full is not made again: torch makes it under warning filters of its own, after which Python shows the
    run's warnings once more.
    """
    # Any factory call uses the default device's table, and its module may not be imported yet; it is tiny.
    import torch.utils._device  # noqa: F401

    for module, name in _TABLES:
        if module not in sys.modules:
            continue
        try:
            make, about = _table(module, name)
            if about is None or not about().currsize:
                make()
        except unsignalled(Exception):
            # These names are private to torch: another version may lack them or part of what they need. Such a
            # table is left to be made at first use, as without Probe.
            continue


@functools.cache
def _table(module: str, name: str) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """Return what makes a table, and its ``cache_info``, perhaps from below other decorators; None without one."""
    make = found = attrgetter(name)(sys.modules[module])
    while not hasattr(found, "cache_info") and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return make, getattr(found, "cache_info", None)
