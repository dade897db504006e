"""Which process this is: from torch.distributed, or from the launcher before that is initialised."""

from __future__ import annotations

import os

import torch.distributed as dist

__all__ = ["current_rank", "world_size"]


def _group() -> bool:
    return dist.is_available() and dist.is_initialized()


def current_rank() -> int | None:
    """This process's rank in the default group; before there is one, RANK as torchrun sets it; else None."""
    return dist.get_rank() if _group() else _number("RANK", least=0)


def world_size() -> int | None:
    """Number of processes in the default group; before there is one, WORLD_SIZE; else None."""
    if _group():
        return dist.get_world_size()
    # A leftover WORLD_SIZE alone makes no run distributed.
    return _number("WORLD_SIZE", least=1) if current_rank() is not None else None


def _number(variable: str, least: int) -> int | None:
    text = os.environ.get(variable, "").strip()
    # Some schedulers set these to other things; what is no rank is taken as not set.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least else None
