"""Write the control file of a kernel dump (data_dump.json) from a description, and read one back, checked."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen
from probe_format.errors import ConfigError, Problem
from probe_format.safe_files import make_folder, replace_file
from probe_runtime.notice import notice

from .backends import Backend, backend_named
from .control_keys import REQUIRED, KeyReader
from .description import KernelDump
from .option_rules import Values, check, notes_of, renamed


def settings(dump: KernelDump, backend: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the control file as a mapping, keys in the order of the documents.

    dump: what to dump.
    backend: a name of `BACKENDS`.
    environ: where MS_DIAGNOSTIC_DATA_PATH is looked up; the process's environment when None.

    Warns of what has no effect (RuntimeWarning). Raises ConfigError, with all problems, when a rule is broken.
    """
    chosen = backend_named(backend)
    values, problems = check(dump, chosen, environ)
    if problems:
        raise ConfigError(problems)
    for note in notes_of(dump, values, chosen):
        notice(f"Probe: {note}")
    return document_of(dump, values, chosen)


def document_of(dump: KernelDump, values: Values, chosen: Backend) -> dict[str, Any]:
    """Return the control file of a description in which `option_rules.check` finds no problem."""
    full: dict[str, Any] = asdict(dump, recurse=False) | {
        "dump_mode": 2 if dump.set_dump else int(bool(values.kernels)),
        "path": dump.path or "",
        "iteration": str(values.iterations),
        "saved_data": dump.saved_data or "tensor",
        "input_output": 2 if not dump.inputs else 1 if not dump.outputs or dump.op_debug_mode == 4 else 0,
        "kernels": [k.text for k in values.kernels],
        "support_device": list(range(8) if dump.devices is None else dump.devices),
        "statistic_category": list(dump.statistic_category or ("max", "min", "l2norm")),
        "file_format": dump.file_format or "bin",
        "enable": dump.synchronous is not False,
        "trans_flag": dump.trans_flag is not False,
    }
    # Options that were not given are left out: the dumper has defaults, and refuses a superfluous overflow_number.
    sections = {"common_dump_settings": chosen.common, "e2e_dump_settings": chosen.e2e}
    given = {key: value for key, value in full.items() if value is not None}
    return {name: {k: given[k] for k in keys if k in given} for name, keys in sections.items() if keys}


def settings_text(document: Mapping[str, Any]) -> str:
    """Return the text of a control file, or of Ascend's: strict JSON, indented by four, as msprobe writes it."""
    return json.dumps(document, indent=4, ensure_ascii=True, allow_nan=False) + "\n"


def write_settings(file: Path, text: str) -> None:
    """Write the control file whole or not at all: the ranks of a node write the same file at the same time."""
    make_folder(file.parent)
    replace_file(file, text.encode())


_SIDES = 'Write "input_output": 0 for both sides, 1 for inputs, 2 for outputs.'
#: Options of KernelDump -> the key of the file, where they differ, and what to write there.
_NAMES = {
    "iterations": ("iteration", ""), "devices": ("support_device", ""), "inputs": ("input_output", _SIDES),
    "outputs": ("input_output", _SIDES), "set_dump": ("dump_mode", 'Write "dump_mode": 0 or 1, or "kernels": [].'),
    "synchronous": ("enable", 'Write "enable": true.'),
}  # fmt: skip


@frozen
class ControlFile:
    """Hold a control file that was read.

    description: the dump that it asks for.
    notes: which of its options have no effect, in sentences.
    refused: why MindSpore refuses the file, though MindSpore's documents show such files, in sentences.
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
    reader.read(_read_json(file, reader.notes, reader.refused))
    description = KernelDump(**reader.options)
    values, wrong = check(description, chosen, environ)
    blamed = {problem.where for problem in reader.problems}
    more = [p for p in map(_of_key, wrong) if p.where.partition("[")[0] not in blamed]
    if problems := [*reader.problems, *more]:
        raise ConfigError([evolve(problem, where=f"{file}: {problem.where}") for problem in problems])
    reader.notes += (str(_of_key(note)) for note in notes_of(description, values, chosen))
    return ControlFile(file, chosen, description, tuple(reader.notes), tuple(reader.refused))


def _of_key(problem: Problem) -> Problem:
    named = renamed(problem, _NAMES)
    key = named.where.partition("[")[0]
    if key in REQUIRED and problem.remedy.startswith("Leave it out"):
        return evolve(named, remedy=f'Write "{key}": {REQUIRED[key]}.')
    return named


_MOST_BYTES = 1 << 20


def _read_json(path: Path, notes: list[str], refused: list[str]) -> Any:
    """Return the document of a control file. Accepts text that MindSpore's documents show but MindSpore refuses.

    notes: gets a sentence for each place where only the last of several values counts.
    refused: gets one for each place that MindSpore refuses.
    Raises ConfigError when the file is not JSON, OSError when it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise _refusal(path, "is no file with an end")  # a pipe would keep everybody waiting
    with path.open("rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise _refusal(path, f"has over {_MOST_BYTES} bytes, which no control file has")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, f"is not text in UTF-8 ({error.reason} at byte {error.start})") from None
    plain, commas = _without_trailing_commas(text)
    try:
        document = _loads(plain, notes)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"is not JSON: {error}") from None
    what = "a comma before a closing bracket; MindSpore refuses the file until it is gone."
    refused += (f"line {line}: {what}" for line in commas)
    return document


def _loads(text: str, notes: list[str]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice = next(key for i, (key, _) in enumerate(items) if key in dict(items[:i]))
            notes.append(f"{twice}: is there twice; the last one counts.")
        return found

    def constant(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


def _without_trailing_commas(text: str) -> tuple[str, list[int]]:
    lines: list[int] = []

    def drop(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        lines.append(text.count("\n", 0, match.start()) + 1)
        return match[1]

    return re.sub(r'"(?:[^"\\]|\\.)*"|,(\s*[}\]])', drop, text), lines


def _refusal(path: Path, what: str) -> ConfigError:
    remedy = 'Write a JSON file like {"common_dump_settings": {...}}.'
    return ConfigError([Problem(str(path), f"{what}.", remedy)])
