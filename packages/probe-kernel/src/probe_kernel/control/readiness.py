"""Find the backend of a kernel dump by MindSpore, and check everything that could prevent the dump, before it begins.

The backend is the way in which MindSpore dumps kernels: by the device, and on Ascend by how graphs are compiled.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from probe_format.errors import ConfigError, Problem, UsageError
from probe_format.suggest import did_you_mean

from probe_kernel.output_folder import unwritable

from .backends import Backend, backend_named
from .description import KernelDump
from .mindspore_run import compiled_graphs, current_rank
from .option_rules import Values, check


def find_backend() -> str:
    """Return the backend of the current context: by the device, and on Ascend by the jit_level (default O0/O1)."""
    ms = _mindspore()
    target = ms.get_context("device_target")
    if target != "Ascend":
        return str(target).lower()
    if os.environ.get("ENABLE_MS_GE_DUMP") == "1":
        return "ge"
    with contextlib.suppress(Exception):
        if ms.get_context("jit_level") == "O2":
            return "ascend-o2"
    return "ascend-o0o1"


def ready(
    description: KernelDump | None, backend: str | None, diagnostic: Any, options: dict[str, Any]
) -> tuple[KernelDump, Backend, Values, str]:
    """Return the description of a dump, its backend, its parsed options, and its folder.

    diagnostic: MS_DIAGNOSTIC_DATA_PATH for the dump, or None.
    options: fields of a KernelDump, as given.

    Raises ConfigError, with every problem, when an option is wrong; UsageError when MindSpore has read its settings
    already.
    """
    problems = []
    known = {a.name for a in attrs.fields(KernelDump)}
    for name in sorted(options.keys() - known):
        hint = did_you_mean(name, known) or f"There are {', '.join(sorted(known))}."
        problems.append(Problem(name, "is not an option of a kernel dump.", hint))
    given = {k: v for k, v in options.items() if k in known}
    if description is not None and given:
        remedy = "Put it into KernelDump(...), or use keywords only."
        problems.append(Problem(", ".join(sorted(given)), "was given beside a description.", remedy))
    found = description if description is not None else KernelDump(**given)
    if not isinstance(found, KernelDump):
        raise UsageError(f"dump wants a KernelDump or its options as keywords; got {found!r}.")
    _mindspore()
    chosen = backend_named(backend if backend is not None else find_backend())
    environ = dict(os.environ)
    if diagnostic is not None:
        environ["MS_DIAGNOSTIC_DATA_PATH"] = os.fspath(diagnostic)
    values, wrong = check(found, chosen, environ)
    problems += wrong
    path = values.path
    if path is not None and not any(p.where in ("path", "MS_DIAGNOSTIC_DATA_PATH") for p in wrong):
        problems += _place(path, chosen)
    problems += _surroundings(chosen)
    if problems or path is None:
        raise ConfigError(problems)
    _too_late(chosen)
    return found, chosen, values, path


def _place(path: str, backend: Backend) -> Iterator[Problem]:
    yield from unwritable(path)
    old = Path(path) if backend.acl else Path(path, f"rank_{current_rank()}")
    with contextlib.suppress(OSError):
        held = sorted(p for p in old.iterdir() if p.is_dir() and not p.name.startswith("."))
        if held:
            what = f"{old} holds an earlier dump ({held[0].name}, ...); the two would be mixed."
            yield Problem("path", what, "Give another path, or move the old dump away.")


def _surroundings(backend: Backend) -> Iterator[Problem]:
    if earlier := os.environ.get("MINDSPORE_DUMP_CONFIG"):
        what = (
            f"is set already ({earlier}). MindSpore reads it once, with the first operator that runs, and may have "
            "read that file by now."
        )
        remedy = (
            "Unset it before the process starts. To dump by that file here, give "
            "dump(load_settings(FILE, BACKEND).description); `probe kernel config` checks it."
        )
        yield Problem("MINDSPORE_DUMP_CONFIG", what, remedy)
    if backend.acl and os.environ.get("GRAPH_OP_RUN") == "1":
        yield Problem(
            "GRAPH_OP_RUN", "is 1: operators run one by one, and a graph dump finds nothing.", "Unset it."
        )
    if backend.name == "ascend-o2" and os.environ.get("ENABLE_MS_GE_DUMP") == "1":
        remedy = 'Write backend="ge", or unset it.'
        yield Problem("ENABLE_MS_GE_DUMP", "is 1, which means the GE dump.", remedy)


def _too_late(backend: Backend) -> None:
    if graphs := compiled_graphs():
        named = ", ".join(graphs[:3]) + (f" and {len(graphs) - 3} more" if len(graphs) > 3 else "")
        raise UsageError(
            f"MindSpore has compiled a graph in this process already ({named}). It read its dump settings then and "
            "would ignore these without a word. Open the dump before the first graph, jit function or optimizer "
            "runs; for a second dump start a new process."
        )
    if backend.name not in ("cpu", "gpu"):
        with contextlib.suppress(AttributeError, ImportError):
            if importlib.import_module("mindspore.communication").GlobalComm.INITED:
                raise UsageError(
                    "mindspore.communication.init() was called already. On Ascend the dump settings are read there: "
                    "open the dump before it."
                )


def _mindspore() -> Any:
    try:
        return importlib.import_module("mindspore")
    except ImportError as e:
        what = "MindSpore is not installed. Install it (pip install mindspore), or write the file with settings()."
        raise UsageError(what) from e
