"""Run the commands that this package adds to ``probe``: diff and nan."""

__all__: list[str] = []
