"""MindSpore's graph as text: operators and their types."""

from __future__ import annotations

from .ir_text import parse_ir, read_ir
from .model import Frame, Graph, Operator, Type

__all__ = ["Frame", "Graph", "Operator", "Type", "parse_ir", "read_ir"]
