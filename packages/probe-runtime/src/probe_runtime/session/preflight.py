"""Check a configuration against the machine and the run, before anything is dumped."""

from collections.abc import Sequence

from probe_format.errors import ConfigError, Problem
from probe_format.layout import MODES, existing_dump, watch_file
from probe_format.watch import free_place
from probe_format.write import check_writable, in_use

from probe_runtime.config.config import Config
from probe_runtime.config.cross_checks import earlier_dump
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
    try:
        unwritable = check_writable(config.dump_path)
        free = config.overwrite or unwritable or in_use(config.dump_path, rank)  # or beside that one
        used = [] if free else _used(config, rank)
    except OSError as e:
        unwritable, used = f"dump_path {config.dump_path}: {e.strerror}. Choose another dump_path.", []
    if unwritable is not None:
        problems.append(Problem("dump_path", unwritable))
    problems += used
    warning = check_rank(config, world_size, launcher)
    if warning is not None and world_size is not None:
        problems.append(Problem("rank", warning))
    if problems:
        raise ConfigError(problems)
    for text in config.warnings if warning is None else (*config.warnings, warning):
        notice(f"Probe: {text}")


def _used(config: Config, rank: int | None) -> list[Problem]:
    """Return the problem of earlier data that would be overwritten, if there is any."""
    if not config.kind.calls:
        path = watch_file(config.dump_path, rank)
        return [earlier_dump(config.dump_path, [path])] if free_place(config.dump_path, rank) is None else []
    bases = (config.dump_path, *(config.dump_path / mode for mode in MODES))
    found = [path for base in bases for path in existing_dump(base, rank, config.step)]
    return [earlier_dump(config.dump_path, found)] if found else []


def check_rank(config: Config, world_size: int | None, launcher: str = TORCH_LAUNCH) -> str | None:
    """Return a warning when `rank` names ranks that this run does not have, else None.

    config: the configuration.
    world_size: the number of processes in the default group; None without a group. A run without a group counts as
        rank 0 (see `select.RankFilter`).
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
