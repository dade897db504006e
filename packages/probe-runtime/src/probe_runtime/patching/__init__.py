"""Replace a framework's functions for a while, and put the original objects back."""

from __future__ import annotations

from . import api_list, patches
from .api_list import RISK_LEVELS, Apis
from .early_bindings import NEVER_SCANNED, Scan
from .included import Included
from .introspection import IntrospectionGuards, quiet, suspended
from .lasting_replacements import Called, once
from .lookup import attributes_of, go_down, is_function, look_up_all, name_of, resolve_owner
from .originals import forget_original, original_of, remember_original
from .patches import Patches
from .places import ABSENT, Attribute, Function, attribute, replaced
from .regions import Regions, StepRegions
from .shared_replacement import Held, HeldPatches, Replace
from .stale_references import Own
from .switch import Label, Switch, Tap, is_muted, muted, thread

__all__ = [
    "ABSENT",
    "NEVER_SCANNED",
    "RISK_LEVELS",
    "Apis",
    "Attribute",
    "Called",
    "Function",
    "Held",
    "HeldPatches",
    "Included",
    "IntrospectionGuards",
    "Label",
    "Own",
    "Patches",
    "Regions",
    "Replace",
    "Scan",
    "StepRegions",
    "Switch",
    "Tap",
    "api_list",
    "attribute",
    "attributes_of",
    "forget_original",
    "go_down",
    "is_function",
    "is_muted",
    "look_up_all",
    "muted",
    "name_of",
    "once",
    "original_of",
    "patches",
    "quiet",
    "remember_original",
    "replaced",
    "resolve_owner",
    "suspended",
    "thread",
]
