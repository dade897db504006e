"""Implement the subcommands of ``probe kernel``."""
