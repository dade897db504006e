"""Switch on MindSpore's own kernel dump for a block: ``with probe_kernel.mindspore.dump(...)``."""

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from probe_format.errors import ConfigError, Problem, UsageError

from probe_kernel.control.control_file import document_of, settings_text, write_settings
from probe_kernel.control.description import KernelDump
from probe_kernel.control.mindspore_run import KernelRun
from probe_kernel.control.option_rules import notes_of
from probe_kernel.control.readiness import find_backend, ready

__all__ = ["KernelRun", "dump", "find_backend"]

_open: list[KernelRun] = []  # at most one, as MindSpore has one configuration per process


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

    MindSpore reads its settings once: open the dump before the first graph is compiled, and on Ascend before
    mindspore.communication.init().

    description: what to dump; or give its fields as keywords (options).
    backend: a name of BACKENDS; found from the context when None.
    diagnostic_data_path: MS_DIAGNOSTIC_DATA_PATH for the block, used when the description has no path.
    manual_steps: count iterations by the step() of the yielded run, not by runs of a graph.

    Writes the control file into the dump's folder. Options without effect raise a warning, and are listed in the
    outcome. The environment is restored when the block ends.

    Raises ConfigError, with every problem and before anything is changed, when an option is wrong; UsageError when a
    graph was compiled already.
    """
    if _open:
        raise UsageError(f"A kernel dump is open in this process already ({_open[0].path}). End it first.")
    found, chosen, values, path = ready(description, backend, diagnostic_data_path, options)
    file = Path(path, chosen.file)
    if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun's scheduler runs the script too, but no graph
        run = KernelRun(chosen, file, path, values, None, manual_steps)
        yield run
        run.finish(quiet=True)
        return
    document = document_of(found, values, chosen)
    try:
        write_settings(file, settings_text(document))
    except OSError as e:
        what = f"{file} cannot be written: {e.strerror}."
        raise ConfigError([Problem("path", what, "Give another path.")]) from e
    # On O2 MS_ACL_DUMP_CFG_PATH makes operators outside of graphs dump, too.
    whole = chosen.acl and document["common_dump_settings"]["dump_mode"] == 0
    variables = {"MINDSPORE_DUMP_CONFIG": str(file), "MS_ACL_DUMP_CFG_PATH": str(file) if whole else None}
    variables |= dict(chosen.environment)
    if diagnostic_data_path:
        variables["MS_DIAGNOSTIC_DATA_PATH"] = os.fspath(diagnostic_data_path)
    calls = importlib.import_module("mindspore._c_expression")
    run = KernelRun(chosen, file, path, values, calls, manual_steps)
    for note in notes_of(found, values, chosen):
        run.warn(str(note))
    before = {name: os.environ.get(name) for name in variables}
    failed = True
    _open.append(run)
    try:
        _set(variables)
        if manual_steps:  # from then on MindSpore counts no iterations itself (seen on 2.7.0 and 2.10.0)
            run.call("_dump_set_dynamic")
            run.first_iteration(0)
            run.start()
        yield run
        failed = False
    finally:
        run.stop()
        _set(before)
        _open.remove(run)
        run.finish(quiet=failed)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
