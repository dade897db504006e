"""Check and parse each document by its specification, as its JSON Schema does."""

from .dump import parse_object
from .finite import kinds_asked_for, kinds_of, non_finite
from .parts import Parts, Side, Value, parts_of
from .report import Report
from .tensor_objects import is_tensor, others, path_text, tensors, walk, why_lost
from .written import only_views, writes_into

__all__ = [
    "Parts", "Report", "Side", "Value", "is_tensor", "kinds_asked_for", "kinds_of", "non_finite",
    "only_views", "others", "parse_object", "parts_of", "path_text", "tensors", "walk", "why_lost",
    "writes_into",
]  # fmt: skip
