"""torch's own tables of its functions, filled while the functions are still the originals."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["fill_caches"]

# Tables that torch makes at first use, keyed by its functions. Made while patches are in place they would
# know our wrappers and, for the rest of the process, not the functions: torch.set_default_device would be
# ignored, torch.compile would break the graph at every call. (module, dotted name of a cached function
# without arguments).
_TABLES = (
    ("torch.utils._device", "_device_constructors"),
    ("torch.overrides", "get_ignored_functions"),
    ("torch.overrides", "get_default_nowrap_functions"),
    ("torch.overrides", "get_testing_overrides"),
    ("torch.overrides", "get_overridable_functions"),
    ("torch._dynamo.trace_rules", "get_torch_obj_rule_map"),
    ("torch._dynamo.trace_rules", "get_tensor_method"),
    ("torch._dynamo.variables.torch", "get_overridable_functions"),
    ("torch._dynamo.variables.torch", "tracing_state_functions"),
    ("torch._dynamo.variables.torch", "TorchInGraphFunctionVariable._get_handlers"),
    ("torch._dynamo.variables.builder", "VariableBuilder._id_dispatch"),
)


def fill_caches() -> None:
    """Fill the tables of the modules that are imported: some 10 ms once, nothing after that, unless torch has
    emptied them (torch.compiler.reset). Call with nothing patched."""
    # The default device's table is asked for by any factory call, and its module is imported late and is
    # tiny.
    import torch.utils._device  # noqa: F401

    for table in _TABLES:
        if table[0] not in sys.modules:
            continue
        found: Any = sys.modules[table[0]]
        try:
            for part in table[1].split("."):
                found = getattr(found, part)
            found()
        except Exception:
            # These names are torch's own business: another version may lack them or half of what they need.
            # Then there is nothing to fill, and it would be made at first use as without us.
            continue
