"""Replace a framework's functions for a while, and put the original objects back."""

from . import api_list, patches
from .api_list import RISK_LEVELS, Apis
from .early_bindings import NEVER_SCANNED, Scan
from .introspection import guards, suspended
from .lookup import Listed, function_of, go_down, is_function, name_of, resolve_owner
from .patches import Patches, Prepared
from .places import Function, Place, bound_elsewhere, original_of, without_ours
from .regions import Regions
from .registry import Held, attributes_of, listening, place, replaced
from .stand_in import stand_in
from .switch import Label, Nested, Switch, Tap, is_muted, muted, quiet, thread

__all__ = [
    "NEVER_SCANNED", "RISK_LEVELS", "Apis", "Function", "Held", "Label", "Listed", "Nested", "Patches",
    "Place", "Prepared", "Regions", "Scan", "Switch", "Tap", "api_list", "attributes_of", "bound_elsewhere",
    "function_of",
    "go_down", "guards", "is_function", "is_muted", "listening", "muted", "name_of", "original_of",
    "patches", "place", "quiet", "replaced", "resolve_owner", "stand_in", "suspended", "thread",
    "without_ours",
]  # fmt: skip
