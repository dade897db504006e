"""Values and errors of the user's as words: what they say of themselves may itself raise."""

from __future__ import annotations

__all__ = ["brief", "shown"]


def brief(error: BaseException) -> str:
    """``ValueError: what it says``, also where saying it raises."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be had)"
    return f"{type(error).__name__}: {text}"


def shown(value: object, most: int = 60) -> str:
    """``repr(value)``, cut to ``most`` characters, also where that raises or is an int of a million digits."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 3]}..."
