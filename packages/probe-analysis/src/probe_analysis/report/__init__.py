"""Show a dump, or two and how they differ, as one HTML page that needs no network."""

from __future__ import annotations

from .report import Report, report

__all__ = ["Report", "report"]
