"""Begin to look for steps when a process imports its framework, and hand the configuration on to its children.

So ``probe run`` records the training steps of a script that calls nothing of Probe. The environment of the processes
that the script starts has the configuration, and a ``sitecustomize`` on the path that has them begin, too.
"""

import atexit
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from probe_format.errors import ProbeError
from probe_format.terminal import tell

from probe_runtime.frameworks import packages
from probe_runtime.patching.importer import Importer

#: What ``probe run`` hands on to the processes that the script starts: {"config": ..., "settings": {...}} as JSON.
RUN = "PROBE_RUN"
#: A configuration file, for a job whose command cannot be changed.
CONFIG = "PROBE_CONFIG"
_START_UP = Path(__file__).parent / "start_up"

Given = tuple[str | None, dict[str, Any]]


def handed_on() -> Given | None:
    """Return what ``probe run`` has handed on to this process: (configuration file, keys that win over it)."""
    if not (text := os.environ.get(RUN)):
        return None
    found = json.loads(text)
    return found["config"], found["settings"]


def named_by_job() -> str | None:
    """Return the configuration file that a job's environment names, where ``probe run`` has not begun already."""
    return os.environ.get(CONFIG) if RUN not in os.environ else None


def hand_on(config: str | None, settings: Mapping[str, Any], environment: MutableMapping[str, str]) -> None:
    """Let every Python process that gets this environment look for steps, too.

    They find a ``sitecustomize`` of ours first on their path, as tools that measure or trace do it; it runs the next
    one that they would have found.
    """
    environment[RUN] = json.dumps({"config": config, "settings": settings})
    paths = [
        one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one and one != str(_START_UP)
    ]
    environment["PYTHONPATH"] = os.pathsep.join([str(_START_UP), *paths])


def begin_on_import(given: Given, *, is_child: bool) -> None:
    """Begin with the first framework that this process imports and a package of Probe's knows.

    is_child: whether another process of the run started this one: it goes on where the configuration cannot be met.
    """
    known = packages()

    def none() -> None:
        names = ", ".join(known) or "the frameworks"
        tell(f"Probe: nothing is recorded: the script imported none of {names}.")

    @contextlib.contextmanager
    def around(name: str) -> Iterator[None]:
        yield
        importer.remove()
        atexit.unregister(none)
        try:
            importlib.import_module(f"{known[name]}.auto").begin(*given, is_child=is_child)
        except ProbeError as e:
            tell(*f"probe run: {e}".split("\n"))
            if not is_child:
                raise SystemExit(2) from None
        except ImportError as e:
            tell(f"probe run: nothing is recorded: {e}.")

    importer = Importer(around, known)
    importer.add()
    if not is_child:
        atexit.register(none)
    for name in known:
        if name in sys.modules:
            with around(name):
                return
