"""Check and parse each document by its specification, as its JSON Schema does."""

from __future__ import annotations

from .dump import parse_object
from .report import Report
from .tensor_objects import is_tensor, others, path_text, tensors

__all__ = ["Report", "is_tensor", "others", "parse_object", "path_text", "tensors"]
