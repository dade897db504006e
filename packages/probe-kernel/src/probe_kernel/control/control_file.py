"""Read an existing control file (data_dump.json) back into a `KernelDump`, and check it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve, frozen
from probe_format.errors import ConfigError, Problem

from .backends import Backend, backend_named
from .control_json import read_json
from .control_keys import REQUIRED, KeyReader
from .description import KernelDump
from .option_rules import check, notes_of

#: Options of KernelDump -> the key of the file, where they differ.
_NAMES = {
    "iterations": "iteration", "devices": "support_device", "inputs": "input_output", "outputs": "input_output",
    "set_dump": "dump_mode", "synchronous": "enable",
}  # fmt: skip
_REMEDIES = {
    "input_output": 'Write "input_output": 0 for both sides, 1 for inputs, 2 for outputs.',
    "dump_mode": 'Write "dump_mode": 0 or 1, or "kernels": [].',
    "enable": 'Write "enable": true.',
}


@frozen
class ControlFile:
    """Hold what a control file asks for.

    description: what it asks for.
    notes: what in it has no effect, in sentences.
    refused: why MindSpore refuses it as it is written, though its documents write it so, in sentences.
    """

    path: Path
    backend: Backend
    description: KernelDump
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def load_settings(
    path: str | os.PathLike[str], backend: str, environ: Mapping[str, str] | None = None
) -> ControlFile:
    """Read a control file of MindSpore's kernel dump, and check it against every rule of ``backend``.

    backend: a name of `BACKENDS`.
    environ: where MS_DIAGNOSTIC_DATA_PATH is looked up; the process's environment when None.

    Raises ConfigError, with every problem at once, when the file is wrong; OSError when it cannot be read.
    """
    chosen = backend_named(backend)
    file = Path(path)
    reader = KeyReader(chosen)
    reader.read(read_json(file, reader.notes, reader.refused))
    description = KernelDump(**reader.options)
    values, wrong = check(description, chosen, environ)
    blamed = {problem.where for problem in reader.problems}
    more = [p for p in map(_of_key, wrong) if p.where.partition("[")[0] not in blamed]
    problems = [*reader.problems, *more]
    if problems:
        raise ConfigError([evolve(problem, where=f"{file}: {problem.where}") for problem in problems])
    reader.notes += (str(_of_key(note)) for note in notes_of(description, values, chosen))
    return ControlFile(file, chosen, description, tuple(reader.notes), tuple(reader.refused))


def _of_key(problem: Problem) -> Problem:
    """Name the key of the file instead of the option."""
    option, bracket, index = problem.where.partition("[")
    key = _NAMES.get(option, option)
    remedy = _REMEDIES.get(key, problem.remedy)
    if key in REQUIRED and problem.remedy.startswith("Leave it out"):
        remedy = f'Write "{key}": {REQUIRED[key]}.'
    return evolve(problem, where=key + bracket + index, remedy=remedy)
