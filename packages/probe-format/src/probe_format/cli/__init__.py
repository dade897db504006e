"""Implement the command ``probe``."""

__all__: list[str] = []
