"""Modules of torch (L0) and its autograd."""

__all__: list[str] = []
