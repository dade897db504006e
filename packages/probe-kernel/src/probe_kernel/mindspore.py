"""MindSpore's own kernel dump, switched on for a block: ``with probe_kernel.mindspore.dump(...)``."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from probe_format.errors import ConfigError, Problem, UsageError
from probe_format.suggest import did_you_mean

from .backends import Backend, backend_named
from .compiled import compiled_graphs
from .description import KernelDump
from .environment import changed
from .folder import unwritable
from .outcome import Outcome, look
from .rules import broken_rules
from .settings import settings, settings_text
from .values import Values, check_values

__all__ = ["KernelRun", "dump", "find_backend"]

_log = logging.getLogger("probe_kernel")
_INSTALL = (
    "MindSpore is not installed. Install it (pip install mindspore), or write the file with settings()."
)
_open: list[KernelRun] = []  # at most one: MindSpore has one configuration per process


@attrs.define(eq=False)
class KernelRun:
    """A kernel dump under way. file: the control file; folder: where this rank's data goes."""

    description: KernelDump
    backend: Backend
    file: Path
    path: str
    _values: Values
    _calls: Any
    manual_steps: bool = False
    _outcome: Outcome | None = None
    _notes: list[str] = attrs.Factory(list)

    @property
    def folder(self) -> str:
        """The folder of this rank, or the whole dump's where the backend has none for ranks."""
        return self.path if self.backend.acl else f"{self.path}/rank_{_rank()}"

    @property
    def outcome(self) -> Outcome:
        """What was written. Raises UsageError before the block has ended."""
        if self._outcome is None:
            raise UsageError("The dump is not over yet: read outcome after the with block.")
        return self._outcome

    def start(self) -> None:
        """Go on dumping. On a CPU MindSpore has no switch: there all runs of a graph are dumped."""
        self._call("_dump_start")

    def stop(self) -> None:
        """Stop until start(), where the version and the backend can."""
        if self.backend.name not in ("cpu",):
            self._synchronize()
        self._call("_dump_stop")

    def step(self) -> None:
        """Count one iteration on. Raises UsageError unless the dump was opened with manual_steps."""
        if not self.manual_steps:
            raise UsageError(
                "This dump counts the runs of each graph by itself. To count with step(), open it with "
                "manual_steps=True."
            )
        self._call("_dump_step", 1)

    def first_iteration(self, number: int) -> None:
        """Count iterations from ``number``, with manual_steps."""
        self._call("_set_init_iter", number)

    def _call(self, name: str, *arguments: int) -> None:
        function = getattr(self._calls, name, None)
        if function is None:
            return
        try:
            function(*arguments)
        except Exception as e:  # a dump that cannot be switched must not end the run
            self._note(f"{name} of this MindSpore failed: {e}")

    def _synchronize(self) -> None:
        try:
            importlib.import_module("mindspore").runtime.synchronize()
        except Exception as e:
            self._note(f"MindSpore could not synchronise: {e}")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
            _log.warning("%s", text)

    def finish(self, *, quiet: bool = False) -> None:
        """Look at what was written, and say it; quiet: in the log only, as the run has an error of its own."""
        notes = [*self._notes, *_remarks(self, bool(compiled_graphs()))]
        try:
            self._outcome = look(self.folder, self._values.kernels, notes)
        except Exception as e:
            self._outcome = Outcome(self.folder, 0, 0, (), 0, (), (*notes, f"The folder is unreadable: {e}"))
        _log.info("%s", self._outcome)
        if quiet:
            return
        for missing in self._outcome.never_ran:
            _warn(f"nothing was dumped for {missing}")
        if not self._outcome.files and not self._outcome.never_ran:
            _warn(str(self._outcome))


@contextlib.contextmanager
def dump(
    description: KernelDump | None = None,
    *,
    backend: str | None = None,
    diagnostic_data_path: str | os.PathLike[str] | None = None,
    manual_steps: bool = False,
    **options: Any,
) -> Iterator[KernelRun]:
    """Dump the kernels of the graphs that are compiled in the block.

    Open it before the first graph is compiled, and on Ascend before mindspore.communication.init(): MindSpore reads
    its settings once. description: what to dump; or its fields as keywords. backend: a name of BACKENDS; found from
    the context when None. diagnostic_data_path: MS_DIAGNOSTIC_DATA_PATH for the block, when there is no path.
    manual_steps: iterations are counted by step() of what the block is given, not by runs of a graph.

    Writes the control file into the dump's folder. Raises ConfigError with every problem before anything is
    changed, and UsageError when a graph was compiled already. The environment is as before when the block ends.
    """
    found, chosen, values, path = _prepared(description, backend, diagnostic_data_path, options)
    file = Path(path, chosen.file)
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun's scheduler runs the script too, but no graph
        run = KernelRun(found, chosen, file, path, values, None, manual_steps)
        yield run
        run.finish(quiet=True)
        return
    with changed(
        {"MS_DIAGNOSTIC_DATA_PATH": os.fspath(diagnostic_data_path)} if diagnostic_data_path else {}
    ):
        document = settings(found, chosen)
        try:
            _write(file, settings_text(document))
        except OSError as e:
            raise ConfigError(
                [Problem("path", f"{file} cannot be written: {e.strerror}.", "Give another path.")]
            ) from e
        run = KernelRun(found, chosen, file, path, values, _c_expression(), manual_steps)
        with changed(_variables(chosen, file, document)):
            _open.append(run)
            try:
                if (
                    manual_steps
                ):  # from then on MindSpore counts no iterations itself (seen on 2.7.0 and 2.10.0)
                    run._call("_dump_set_dynamic")
                    run._call("_set_init_iter", 0)
                    run.start()
                yield run
            except BaseException:
                run.stop()
                run.finish(quiet=True)
                raise
            else:
                run.stop()
            finally:
                _open.remove(run)
    run.finish()


def find_backend() -> str:
    """The backend of the current context: the device, and on Ascend the jit_level; O0/O1 where none is set."""
    ms = _mindspore()
    target = ms.get_context("device_target")
    if target != "Ascend":
        return str(target).lower()
    if os.environ.get("ENABLE_MS_GE_DUMP") == "1":
        return "ge"
    level = None
    with contextlib.suppress(Exception):
        level = ms.get_context("jit_level")
    return "ascend-o2" if level == "O2" else "ascend-o0o1"


def _prepared(
    description: KernelDump | None, backend: str | None, diagnostic: Any, options: dict[str, Any]
) -> tuple[KernelDump, Backend, Values, str]:
    """Everything that can be wrong, found before anything is done."""
    problems = []
    known = {a.name for a in attrs.fields(KernelDump)}
    for name in [n for n in options if n not in known]:
        hint = did_you_mean(name, known) or f"There are {', '.join(sorted(known))}."
        problems.append(Problem(name, "is no option of a kernel dump.", hint))
    given = {k: v for k, v in options.items() if k in known}
    if description is not None and given:
        named = ", ".join(sorted(given))
        problems.append(
            Problem(
                named, "was given beside a description.", "Put it into KernelDump(...), or use keywords only."
            )
        )
        given = {}
    found = description if description is not None else KernelDump(**given)
    if not isinstance(found, KernelDump):
        raise UsageError(f"dump wants a KernelDump or its options as keywords; got {found!r}.")
    ms = _mindspore()
    chosen = backend_named(backend if backend is not None else find_backend())
    environ = dict(os.environ)
    if diagnostic is not None:
        environ["MS_DIAGNOSTIC_DATA_PATH"] = os.fspath(diagnostic)
    values, wrong = check_values(found, environ)
    problems += [*wrong, *broken_rules(found, values, chosen)]
    path = values.path
    if path is not None and not any(p.where in ("path", "MS_DIAGNOSTIC_DATA_PATH") for p in wrong):
        problems += _place(path, chosen)
    problems += _surroundings(chosen)
    if problems or path is None:
        raise ConfigError(problems)
    _too_late(ms, chosen)
    return found, chosen, values, path


def _place(path: str, backend: Backend) -> Iterator[Problem]:
    if (why := unwritable(path)) is not None:
        yield Problem("path", why, "Give another path.")
    old = Path(path) if backend.acl else Path(path, f"rank_{_rank()}")
    with contextlib.suppress(OSError):
        held = sorted(p for p in old.iterdir() if p.is_dir() and not p.name.startswith("."))
        if held:
            what = f"{old} holds an earlier dump ({held[0].name}, ...); the two would be mixed."
            yield Problem("path", what, "Give another path, or move the old dump away.")


def _surroundings(backend: Backend) -> Iterator[Problem]:
    if os.environ.get("MINDSPORE_DUMP_CONFIG"):
        what = (
            f"is set already ({os.environ['MINDSPORE_DUMP_CONFIG']}). MindSpore reads it once, with the first "
            "operator that runs, and may have read that file by now."
        )
        yield Problem("MINDSPORE_DUMP_CONFIG", what, "Unset it before the process starts.")
    if backend.acl and os.environ.get("GRAPH_OP_RUN") == "1":
        what = "is 1: operators then run one by one, and a graph dump finds nothing."
        yield Problem("GRAPH_OP_RUN", what, "Unset it.")
    if backend.name == "ascend-o2" and os.environ.get("ENABLE_MS_GE_DUMP") == "1":
        yield Problem(
            "ENABLE_MS_GE_DUMP", "is 1, which means the GE dump.", 'Write backend="ge", or unset it.'
        )


def _too_late(ms: Any, backend: Backend) -> None:
    if _open:
        raise UsageError(f"A kernel dump is open in this process already ({_open[0].path}). End it first.")
    graphs = compiled_graphs()
    if graphs:
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


def _variables(backend: Backend, file: Path, document: dict[str, Any]) -> dict[str, str | None]:
    """What the dumper reads. MS_ACL_DUMP_CFG_PATH makes operators outside of graphs dump too, on O2."""
    common = document["common_dump_settings"]
    whole = common["dump_mode"] == 0 and (common["iteration"] != "all" or not common["kernels"])
    return {
        "MINDSPORE_DUMP_CONFIG": str(file),
        "MS_ACL_DUMP_CFG_PATH": str(file) if backend.acl and whole else None,
        **dict(backend.environment),
    }


def _remarks(run: KernelRun, compiled: bool) -> Iterator[str]:
    if not compiled:
        yield (
            "No graph was compiled in the block: MindSpore dumps the kernels of graphs (GRAPH_MODE, @jit), and in "
            "PyNative mode nothing else."
        )
    elif run.backend.name == "cpu" and run._values.iterations.all:
        yield (
            "On a CPU MindSpore goes on dumping each run of a graph until the process ends, also after the block; "
            "give iterations to limit it."
        )


def _write(file: Path, text: str) -> None:
    """Whole or not at all: the ranks of a node write the same file at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, file)


def _rank() -> int:
    with contextlib.suppress(Exception):
        communication = importlib.import_module("mindspore.communication")
        if communication.GlobalComm.INITED:
            return int(communication.get_rank())
    text = os.environ.get("RANK_ID", "")
    return int(text) if text.isdigit() else 0


def _c_expression() -> Any:
    return importlib.import_module("mindspore._c_expression")


def _mindspore() -> Any:
    try:
        return importlib.import_module("mindspore")
    except ImportError as e:
        raise UsageError(_INSTALL) from e


def _warn(text: str) -> None:
    warnings.warn(f"Probe: {text}", RuntimeWarning, stacklevel=5)
