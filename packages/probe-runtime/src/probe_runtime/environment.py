"""Read whole numbers from environment variables, as launchers of distributed runs set them."""

import os


def environment_number(variable: str, least: int = 0) -> int | None:
    """Return the number in an environment variable; None unless it is set to a whole number from ``least`` up."""
    # Some schedulers set variables such as RANK to other things: such a value counts as not set.
    text = os.environ.get(variable, "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least else None
