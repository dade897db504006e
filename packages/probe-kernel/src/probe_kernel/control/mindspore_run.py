"""Start, stop and step a kernel dump of MindSpore while it is open, and report its result at the end; list the graphs
that this process has compiled, after which MindSpore would ignore a new dump's settings.
"""

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterable
from itertools import chain, product
from pathlib import Path
from typing import Any

import attrs
from probe_format.errors import UsageError
from probe_format.excerpts import unsignalled
from probe_runtime.environment import environment_number
from probe_runtime.notice import log, log_once, notice

from .backends import Backend
from .option_rules import Values
from .outcome import DumpOutcome, inspect_dump

# MindSpore 2.9 and later keep the state in the first; the second is then a copy, and may be older.
_MODULES = ("mindspore.graph.api", "mindspore.common.api")
_KEPT: tuple[Callable[[Any], Iterable[object]], ...] = (
    lambda api: api.function_phases,
    lambda api: chain.from_iterable(api.cells_compile_cache.values()),
    lambda api: api.ms_compile_cache,
)


def compiled_graphs() -> tuple[str, ...]:
    """Return the graphs that were compiled in this process, by name where MindSpore kept it.

    MindSpore reads MINDSPORE_DUMP_CONFIG when the first graph is compiled, and never again (seen on 2.7.0 and
    2.10.0). It drops graphs whose Cell is gone, but keeps the names by which it warns of recompilation. A compile that
    failed counts too: 2.7.0 has read the settings by then.
    """
    found: dict[str, None] = {}
    for module, kept in product(_MODULES, _KEPT):
        with contextlib.suppress(AttributeError, TypeError):
            names = map(str, kept(sys.modules.get(module)))
            # without path, addresses and times: __main__.train./home/me/t.py.81 is __main__.train
            found |= {re.sub(r"(\./.*|([./]\d+)+\.?)$", "", name) or name: None for name in names}
    return tuple(found)


@attrs.define(eq=False)
class KernelRun:
    """Control a kernel dump that runs.

    file: the control file.
    path: the folder of the dump.
    """

    backend: Backend
    file: Path
    path: str
    _values: Values
    _calls: Any
    manual_steps: bool = False
    _outcome: DumpOutcome | None = None
    _notes: list[str] = attrs.Factory(list)

    @property
    def folder(self) -> str:
        """Return the folder of this rank, or the whole dump's where the backend has no folders for ranks."""
        return self.path if self.backend.acl else f"{self.path}/rank_{current_rank()}"

    @property
    def outcome(self) -> DumpOutcome:
        """Return what was written. Raises UsageError when the block has not ended."""
        if self._outcome is None:
            raise UsageError("The dump is not over yet: read outcome after the with block.")
        return self._outcome

    def start(self) -> None:
        """Begin or resume dumping. A CPU has no switch: there MindSpore dumps all runs of a graph."""
        self.call("_dump_start")

    def stop(self) -> None:
        """Stop until start(), where version and backend can."""
        if self.backend.name != "cpu":
            ms = importlib.import_module("mindspore")
            self._attempt(lambda: ms.runtime.synchronize(), "MindSpore could not synchronise")
        self.call("_dump_stop")

    def step(self) -> None:
        """Go on to the next iteration. Raises UsageError when the dump was opened without manual_steps."""
        if not self.manual_steps:
            raise UsageError(
                "This dump counts the runs of each graph by itself. To count with step(), open it with "
                "manual_steps=True."
            )
        self.call("_dump_step", 1)

    def first_iteration(self, number: int) -> None:
        self.call("_set_init_iter", number)

    def call(self, name: str, *arguments: int) -> None:
        function = getattr(self._calls, name, None)
        if function is not None:
            self._attempt(function, f"{name} of this MindSpore failed", *arguments)

    def _attempt(self, function: Callable[..., Any], failed: str, *arguments: int) -> None:
        try:
            function(*arguments)
        except unsignalled(Exception) as e:  # a dump that cannot be switched must not end the run
            text = f"{failed}: {e}"
            if text not in self._notes:
                self._notes.append(text)
                log_once("probe_kernel", text)

    def warn(self, text: str) -> None:
        self._notes.append(text)
        notice(f"Probe: {text}")

    def finish(self, *, quiet: bool = False) -> None:
        """Look at what was written, and report it.

        quiet: in the log only, as the run has an error of its own.
        """
        notes = [*self._notes]
        if not compiled_graphs():
            notes.append(
                "No graph was compiled in the block: MindSpore dumps the kernels of graphs (GRAPH_MODE, @jit), and in "
                "PyNative mode nothing else."
            )
        elif self.backend.name == "cpu" and self._values.iterations.all:
            notes.append(
                "On a CPU MindSpore goes on dumping each run of a graph until the process ends, also after the block; "
                "give iterations to limit it."
            )
        try:
            self._outcome = inspect_dump(self.folder, self._values.kernels, notes)
        except unsignalled(Exception) as e:
            notes.append(f"The folder is unreadable: {e}")
            self._outcome = DumpOutcome(self.folder, 0, 0, (), 0, (), tuple(notes))
        log("probe_kernel", str(self._outcome))
        if quiet:
            return
        for missing in self._outcome.never_ran:
            notice(f"Probe: nothing was dumped for {missing}")
        if not self._outcome.files and not self._outcome.never_ran:
            notice(f"Probe: {self._outcome}")


def current_rank() -> int:
    """Return the rank of this process: from the initialised group, else from RANK_ID, else 0."""
    with contextlib.suppress(Exception):
        communication = importlib.import_module("mindspore.communication")
        if communication.GlobalComm.INITED:
            return int(communication.get_rank())
    return environment_number("RANK_ID") or 0
