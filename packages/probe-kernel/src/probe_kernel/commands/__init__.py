"""Implement the subcommands of ``probe kernel``."""

__all__: list[str] = []
