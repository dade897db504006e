"""Cells and gradients inside compiled graphs."""

__all__: list[str] = []
