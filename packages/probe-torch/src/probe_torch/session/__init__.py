"""Open the session of a debugger of torch and its steps, at every level."""

__all__: list[str] = []
