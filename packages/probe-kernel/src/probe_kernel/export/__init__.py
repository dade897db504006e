"""A kernel dump as dump.json, stack.json and construct.json."""

from __future__ import annotations

from .export import Exported, cells_of, export

__all__ = ["Exported", "cells_of", "export"]
