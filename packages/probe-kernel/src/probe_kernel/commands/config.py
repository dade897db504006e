"""Run the subcommand config: check whether a backend can read a control file, and print what it reads."""

import argparse
import os
from pathlib import Path

from probe_format.cli import Command
from probe_format.errors import UsageError
from probe_format.terminal import say

from probe_kernel.control.backends import BACKENDS
from probe_kernel.control.control_file import document_of, load_settings, settings_text
from probe_kernel.control.option_rules import check

_VARIABLE = "MINDSPORE_DUMP_CONFIG"


def _arguments(parser: argparse.ArgumentParser) -> None:
    what = f"the control file (data_dump.json); without it, the one that {_VARIABLE} names"
    parser.add_argument("file", type=Path, nargs="?", help=what)
    parser.add_argument("--backend", required=True, choices=BACKENDS, help="for which it is")


def _config(arguments: argparse.Namespace) -> int:
    path = arguments.file or os.environ.get(_VARIABLE)
    if not path:
        raise UsageError(f"Which file? Name it (probe kernel config data_dump.json), or set {_VARIABLE}.")
    found = load_settings(path, arguments.backend)
    values, _ = check(found.description, found.backend)
    text = settings_text(document_of(found.description, values, found.backend))
    say(f"{found.path}: {found.backend.title} reads it as", *text.splitlines())
    say(*(f"note: {note}" for note in found.notes))
    say(*(f"wrong: {why}" for why in found.refused))
    return int(bool(found.refused))


CONFIG = Command(
    "config", "check a control file of MindSpore, and print what of it counts", _arguments, _config
)
