"""Define the options that choose a part of a dump, in the same way for every command of ``probe``."""

from __future__ import annotations

import argparse

__all__ = ["add_rank", "add_step", "whole_number"]


def add_step(parser: argparse.ArgumentParser, what: str = "only this step") -> None:
    """Add the option ``--step N``."""
    parser.add_argument("--step", type=whole_number, metavar="N", help=what)


def add_rank(parser: argparse.ArgumentParser, what: str = "only this rank") -> None:
    """Add the option ``--rank N``."""
    parser.add_argument("--rank", type=whole_number, metavar="N", help=what)


def whole_number(text: str) -> int:
    """Return a number from 0 up, as the type of an argument. Raises ArgumentTypeError when it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)
