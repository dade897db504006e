"""Find this process's rank and the number of processes, from torch.distributed or, before that is initialised, from
the launcher."""

import torch.distributed as dist
from probe_runtime.environment import environment_number


def _group() -> bool:
    return dist.is_available() and dist.is_initialized()


def current_rank() -> int | None:
    """Return this process's rank in the default group; without a group RANK, as torchrun sets it; else None."""
    return dist.get_rank() if _group() else environment_number("RANK")


def world_size() -> int | None:
    """Return the number of processes in the default group; without a group WORLD_SIZE; else None."""
    if _group():
        return dist.get_world_size()
    # A leftover WORLD_SIZE alone makes no run distributed.
    return environment_number("WORLD_SIZE", least=1) if current_rank() is not None else None
