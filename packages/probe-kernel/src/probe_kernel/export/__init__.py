"""Write a kernel dump as dump.json, stack.json and construct.json."""

from .export import Exported, export

__all__ = ["Exported", "export"]
