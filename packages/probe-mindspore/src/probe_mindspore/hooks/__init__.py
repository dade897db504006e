"""Cells of MindSpore (L0) and its PyNative autograd."""

__all__: list[str] = []
