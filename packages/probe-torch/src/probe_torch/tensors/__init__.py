"""A tensor of torch as JSON: its type, numbers and file, and when they may be used again."""

__all__: list[str] = []
