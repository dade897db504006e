"""The command ``probe``."""

__all__: list[str] = []
