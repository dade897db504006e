"""Implement the command ``probe``, and end those that other packages add to it in its own way."""

from __future__ import annotations

from .command import add_rank, add_step, exit_code, refuse_unknown, whole_number

__all__ = ["add_rank", "add_step", "exit_code", "refuse_unknown", "whole_number"]
