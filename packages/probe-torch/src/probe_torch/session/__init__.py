"""The session of a debugger of torch, its steps, and level L2."""

__all__: list[str] = []
