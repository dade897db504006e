"""Read amounts on the command line."""

from __future__ import annotations

import argparse
import math

__all__ = ["amount"]


def amount(text: str) -> float:
    """Return a finite number from 0 up, as the type of an argument. Raises ArgumentTypeError when it is not one."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return found
