"""The subcommands of ``probe kernel``."""

__all__: list[str] = []
