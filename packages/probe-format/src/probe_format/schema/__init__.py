"""Check and parse each document by its specification, as its JSON Schema does."""

from .calls import Construct, Stack
from .dump import Document, parse_object
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
from .form import path_text
from .parts import Parts, Side, Value, parts_of
from .report import Report, parse_report
from .tensor_objects import is_tensor, others, tensors, walk, why_lost

__all__ = [
    "MASK", "Construct", "Document", "Parts", "Report", "Side", "Stack", "Suspect", "Value", "broken", "is_tensor",
    "kinds_asked_for", "kinds_of", "may_begin", "non_finite", "only_views", "others", "parse_object", "parse_report",
    "parts_of", "path_text", "suspect_of", "tensors", "walk", "why_lost", "writes_into",
]  # fmt: skip
