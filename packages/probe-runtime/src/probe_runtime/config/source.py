"""Read a debugger's configuration from its file and arguments, and read it again where the file has changed.

Reading again (`reload`) refuses a change of what must stay the same in a running job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import brief

from .config import KEYS, Config
from .config_file import ConfigFile, load
from .keys import CALL_LEVELS
from .resolve import resolve

_FIXED = tuple(name for name, key in KEYS.items() if key.fixed)
_REMEDY = "Put it back as it was, or close() the debugger and make another."


class ConfigSource:
    """Where a configuration comes from: a file, if there is one, and arguments, which win over it.

    path: the file as given; None without one.
    arguments: by the names of the keys; None where not given.
    """

    def __init__(self, path: str | None, arguments: Mapping[str, Any]) -> None:
        self.path = path
        self.arguments = dict(arguments)
        self._seen: tuple[int, ...] | None = None
        self._first: Mapping[str, Any] = {}

    def is_same(self, other: ConfigSource) -> bool:
        """Return whether this is the same file, with the same arguments."""
        return _absolute(self.path) == _absolute(other.path) and self.arguments == other.arguments

    def read(self) -> Config:
        """Return the configuration. Raises ConfigError with every problem at once."""
        if self.path is None:
            return resolve(**self.arguments)
        self._seen = _state(self.path)
        self._first = load(self.path)
        self.path = _absolute(self.path)  # the working directory may change
        return resolve(self._first, **self.arguments)

    def changed(self) -> bool:
        """Return whether the file has changed since it was read, or since the last call. Looks at the disk once."""
        if self.path is None:
            return False
        before, self._seen = self._seen, _state(self.path)
        return self._seen != before

    def read_again(self, now: Config) -> Config:
        """Return the configuration that the file has by now.

        now: the one in force. Its ``dump_path`` stays, and its ``dump_enable`` where the file has none.

        Raises ConfigError with every problem at once.
        """
        assert self.path is not None
        file = load(self.path)
        if self._seen != _state(self.path):
            raise ConfigError([Problem(self.path, "was written to while it was read.")])
        if not file:
            raise ConfigError([Problem(self.path, "is empty.")])
        config = resolve(file, **{**self.arguments, "dump_path": now.dump_path})
        if problems := list(self._refused(file, now, config)):
            raise ConfigError(problems)
        return attrs.evolve(config, dump_enable=now.dump_enable) if config.dump_enable is None else config

    def _refused(self, file: ConfigFile, now: Config, config: Config) -> Iterator[Problem]:
        for key in _FIXED:
            if self.arguments.get(key) is None and file.get(key) != self._first.get(key):
                what = f"is {brief(file.get(key))} now, and cannot change in a running job."
                yield Problem(file.place(key), what, _REMEDY)
        if config.level != now.level and not {config.level, now.level} <= set(CALL_LEVELS):
            what = f"cannot change from {now.level!r} to {config.level!r} in a running job."
            yield Problem(file.place("level"), what, f"Write {', '.join(CALL_LEVELS)}.")


def _absolute(path: Any) -> Any:
    return os.path.abspath(path) if isinstance(path, str | os.PathLike) else path


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written to (time, size, inode); None where there is no file."""
    try:
        state = os.stat(path)
    except (OSError, TypeError, ValueError):
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
