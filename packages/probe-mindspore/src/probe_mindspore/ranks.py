"""Find this process's rank and the number of processes, from mindspore.communication or, before that is initialised,
from the launcher.
"""

import os

from mindspore import communication
from mindspore.communication import GlobalComm
from probe_runtime.environment import environment_number

#: What starts several processes, in words.
LAUNCHER = "msrun (or set RANK_ID and RANK_SIZE)"


def current_rank() -> int | None:
    """Return the rank in the world group; without a group RANK_ID, as a launcher sets it; else None."""
    if GlobalComm.INITED:
        return int(communication.get_rank())
    size = world_size()
    # Scripts for one device often set RANK_ID=0 and RANK_SIZE=1, which does not make a run distributed.
    alone = size == 1 and "MS_ROLE" not in os.environ  # which msrun sets
    return None if alone else environment_number("RANK_ID")


def world_size() -> int | None:
    """Return the number of processes in the world group; without a group that of a launcher; else None."""
    if GlobalComm.INITED:
        return int(communication.get_group_size())
    if environment_number("RANK_ID") is None:  # a leftover size alone does not make a run distributed
        return None
    return environment_number("RANK_SIZE", least=1) or environment_number("MS_WORKER_NUM", least=1)
