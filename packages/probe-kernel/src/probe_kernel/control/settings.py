"""Write the control file of a kernel dump: the JSON that a backend reads, from a description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict
from probe_format.errors import ConfigError
from probe_format.safe_files import make_folder, replace_file
from probe_runtime.notice import notice

from .backends import Backend, backend_named
from .description import KernelDump
from .option_checks import Values
from .option_rules import check, notes_of


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
    """Return the control file's text: strict JSON, indented by four, as msprobe writes it."""
    return json.dumps(document, indent=4, ensure_ascii=True, allow_nan=False) + "\n"


def write_settings(file: Path, text: str) -> None:
    """Write the control file whole or not at all: the ranks of a node write the same file at the same time."""
    make_folder(file.parent)
    replace_file(file, text.encode())
