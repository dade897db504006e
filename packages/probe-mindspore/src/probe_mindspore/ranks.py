"""Which process this is: from mindspore.communication, or from the launcher before that is initialised."""

from __future__ import annotations

import os

from mindspore import communication
from mindspore.communication import GlobalComm

__all__ = ["LAUNCHER", "current_rank", "world_size"]

#: What starts several processes, in words.
LAUNCHER = "msrun (or set RANK_ID and RANK_SIZE)"


def current_rank() -> int | None:
    """This process's rank in the world group; before there is one, RANK_ID of a launcher; else None."""
    if GlobalComm.INITED:
        return int(communication.get_rank())
    size = world_size()
    # Scripts for one device often set RANK_ID=0 and RANK_SIZE=1: that makes no run distributed.
    alone = size == 1 and "MS_ROLE" not in os.environ  # which msrun sets
    return None if alone else _number("RANK_ID", least=0)


def world_size() -> int | None:
    """Number of processes in the world group; before there is one, what a launcher says; else None."""
    if GlobalComm.INITED:
        return int(communication.get_group_size())
    if _number("RANK_ID", least=0) is None:  # a leftover size alone says nothing
        return None
    return _number("RANK_SIZE", least=1) or _number("MS_WORKER_NUM", least=1)


def _number(variable: str, least: int) -> int | None:
    text = os.environ.get(variable, "").strip()
    # Some schedulers set these to other things; what is no number is taken as not set.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least else None
