"""A tensor of MindSpore as JSON: its type, numbers and file."""

__all__: list[str] = []
