"""Implement the command ``probe``, and what the commands are made of that other packages add to it."""

from .command import Command, add_dump, add_part, run_one_of, shown, whole_number

__all__ = ["Command", "add_dump", "add_part", "run_one_of", "shown", "whole_number"]
