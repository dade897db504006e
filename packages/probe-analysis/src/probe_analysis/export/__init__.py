"""Write a dump as tables for SQL engines and data frames, or as curves for TensorBoard."""

from __future__ import annotations

from .columns import SCHEMA_VERSION, TABLES
from .export import FORMS, Exported, export
from .output import leftovers

__all__ = ["FORMS", "SCHEMA_VERSION", "TABLES", "Exported", "export", "leftovers"]
