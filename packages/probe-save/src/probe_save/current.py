"""Keep the saver of this process: `configure` makes it, `save` and `step` use it.

Without `configure`, the file that the variable PROBE_SAVE_CONFIG names says where and how it saves.
"""

import os
import threading
from pathlib import Path
from typing import TypeVar, Unpack

from probe_format.errors import ConfigError, UsageError
from probe_runtime.config import AllSettings

from .saver import Saver

T = TypeVar("T")

#: Names a configuration file, for when `configure` is not called.
VARIABLE = "PROBE_SAVE_CONFIG"

_lock = threading.RLock()
_saver: Saver | None = None


def configure(config_path: str | Path | None = None, **settings: Unpack[AllSettings]) -> Saver:
    """Configure where and how `save` saves, and return the saver. The arguments are those of `Saver`.

    A second call closes the saver of the first. Raises ConfigError with every problem at once.
    """
    global _saver
    with _lock:
        previous, _saver = _saver, None
        if previous is not None:
            previous.close()
        _saver = Saver(config_path, **settings)
        return _saver


def save(variable: T, name: str, save_backward: bool = True) -> T:
    """Save ``variable`` with the saver that `configure` made or PROBE_SAVE_CONFIG describes; see `Saver.save`."""
    return _current().save(variable, name, save_backward)


def step() -> None:
    """End the step of the saver that `configure` made or PROBE_SAVE_CONFIG describes; see `Saver.step`."""
    _current().step()


def _current() -> Saver:
    global _saver
    if _saver is None:
        with _lock:
            if _saver is None:
                path = os.environ.get(VARIABLE, "").strip()
                if not path:
                    raise UsageError(
                        "Where to save is not configured. Call probe_save.configure(dump_path='./dump') first, or set "
                        f"{VARIABLE} to a config.json or YAML file."
                    )
                try:
                    made = Saver(path)
                except ConfigError:
                    if _saver is None:
                        raise
                else:
                    _saver = _saver or made  # a signal handler may have been faster
    return _saver
