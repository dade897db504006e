"""Read MindSpore's graphs from their text files: operators and their types."""

from .ir_text import read_ir
from .model import Frame, Graph, Operator, Type

__all__ = ["Frame", "Graph", "Operator", "Type", "read_ir"]
