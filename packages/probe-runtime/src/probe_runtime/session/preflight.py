"""Check a configuration against the machine and the run, before anything is dumped.

Its dump_path must be writable and hold no earlier dump that would be mixed up. Ranks that it names and the run does
not have are an error, or a warning where the run is not distributed.
"""

from collections.abc import Sequence
from pathlib import Path

from probe_format.errors import ConfigError, Problem
from probe_format.layout import watch_file
from probe_format.watch import free_place

from probe_runtime.config.config import Config
from probe_runtime.config.cross_checks import earlier_ranks, path_problem
from probe_runtime.config.number_ranges import compact
from probe_runtime.notice import notice

TORCH_LAUNCH = "torchrun (or set RANK)"


def preflight(
    config: Config,
    rank: int | None,
    world_size: int | None,
    found: Sequence[Problem] = (),
    launcher: str = TORCH_LAUNCH,
) -> None:
    """Check the configuration, and tell the user what it warns of.

    config: the configuration.
    rank: the rank of this process; None when not distributed.
    world_size: the number of processes; None when not distributed.
    found: problems found elsewhere.
    launcher: what starts several processes, in words.

    Raises ConfigError with every problem, ``found`` included.
    """
    problems = list(found)
    if (problem := path_problem(config, rank, lambda: _earlier(config, rank))) is not None:
        problems.append(problem)
    warning = check_rank(config, world_size, launcher)
    if warning is not None and world_size is not None:
        problems.append(Problem("rank", warning))
    if problems:
        raise ConfigError(problems)
    for text in config.warnings if warning is None else (*config.warnings, warning):
        notice(f"Probe: {text}")


def _earlier(config: Config, rank: int | None) -> list[Path]:
    if config.kind.calls:
        return earlier_ranks(config, [rank])
    return [watch_file(config.dump_path, rank)] if free_place(config.dump_path, rank) is None else []


def check_rank(config: Config, world_size: int | None, launcher: str = TORCH_LAUNCH) -> str | None:
    """Return a warning when `rank` names ranks that this run does not have, else None.

    config: the configuration.
    world_size: the number of processes in the default group; None without a group. A run without a group counts as
        rank 0 (see `Config.wants_rank`).
    launcher: what starts several processes, in words.
    """
    if not config.rank:
        return None
    ranks = f"rank {compact(config.rank)}".replace("'", '"')
    if world_size is None:
        if 0 in config.rank:
            return (
                f"{ranks}: this run has no process group. It counts as rank 0 and is dumped; "
                "`rank` can be left out."
            )
        return (
            f"{ranks}: this run has no process group and counts as rank 0, so nothing will be dumped. "
            f"Leave `rank` out, give start() a rank_id, or start with {launcher} if there are to be several processes."
        )
    beyond = [r for r in config.rank if r >= world_size]
    if not beyond:
        return None
    last = f"this run has {world_size} process{'es' * (world_size > 1)}, so ranks end at {world_size - 1}"
    listed = f"rank {compact(beyond)}".replace("'", '"')
    if len(beyond) == len(config.rank):
        return f"{listed}: {last} and nothing will be dumped. Write ranks from 0 to {world_size - 1}."
    return f"{listed}: {last}; only the others of {ranks} will be dumped."
