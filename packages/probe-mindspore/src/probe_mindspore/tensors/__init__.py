"""Describe tensors of MindSpore as JSON with numbers and files."""

__all__: list[str] = []
