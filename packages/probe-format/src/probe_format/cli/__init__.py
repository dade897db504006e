"""Implement the command ``probe``, and end those that other packages add to it in its own way."""

from __future__ import annotations

from .outcome import exit_code

__all__ = ["exit_code"]
