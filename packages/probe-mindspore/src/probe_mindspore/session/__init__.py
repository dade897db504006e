"""The session of a debugger of MindSpore, and its steps."""

__all__: list[str] = []
