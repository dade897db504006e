"""Check and parse each document by its specification, as its JSON Schema does."""

from .dump import parse_object
from .finite import (
    MASK,
    Suspect,
    broken,
    kinds_asked_for,
    kinds_of,
    may_begin,
    non_finite,
    only_views,
    suspect_of,
    writes_into,
)  # fmt: skip
from .parts import Parts, Side, Value, parts_of
from .report import Report
from .tensor_objects import is_tensor, others, path_text, tensors, walk, why_lost

__all__ = [
    "MASK", "Parts", "Report", "Side", "Suspect", "Value", "broken", "is_tensor", "kinds_asked_for", "kinds_of",
    "may_begin", "non_finite",
    "only_views", "others", "parse_object", "parts_of", "path_text", "suspect_of", "tensors", "walk", "why_lost",
    "writes_into",
]  # fmt: skip
