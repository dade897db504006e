"""Run ``probe run [--config FILE] [--KEY VALUE ...] SCRIPT ARGUMENTS``: dump the steps of a script as it is."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_format.errors import ProbeError
from probe_format.suggest import did_you_mean
from probe_format.terminal import tell

from probe_runtime.config import load, resolve
from probe_runtime.config.config import KEYS
from probe_runtime.yaml_text import YamlError, parse

from . import activation
from .script import Script, module, run, script

_ABOUT = (
    "Run a script, and dump the steps of its training loop. The script needs no line of Probe: the model and the steps "
    "are found by the calls of models and the updates of optimizers. The run computes what it would compute without."
)
_EXIT = "exit code: that of the script; 2 where the configuration or the script cannot be read"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe run``; those of the process when None.
    """
    parser = _parser()
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        near = did_you_mean(unknown[0].lstrip("-"), [*KEYS, "config"])
        parser.error(f"{unknown[0]} is not a key of the configuration. {near}")
    try:
        settings = {key: value for key, value in vars(given.keys).items() if value is not None}
        config = resolve(None if given.config is None else load(given.config), **settings)
        settings |= {
            key: str(getattr(config, key)) for key in settings if isinstance(getattr(config, key), Path)
        }
        path = None if given.config is None else os.path.abspath(given.config)
        what = _found(given)
    except ProbeError as error:
        tell(*f"probe run: {error}".split("\n"))
        return 2
    activation.hand_on(path, settings, os.environ)
    activation.begin_on_import((path, settings), is_child=False)
    run(what, given.arguments)
    return 0


def _found(given: argparse.Namespace) -> Script:
    """Return the script or module to run, and change ``sys.path`` to what ``python`` would give it."""
    if given.module:
        sys.path[0] = os.getcwd()
        return module(given.target)
    what = script(given.target)
    sys.path[0] = os.path.dirname(os.path.abspath(what.file))
    return what


class _KeyOption(argparse.Action):
    """Keep a key of the configuration; its value is read as YAML."""

    def __call__(
        self, parser: Any, space: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            value, _ = parse(values)
        except (YamlError, RecursionError):
            value = values
        setattr(space.keys, self.dest, value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe run",
        description=_ABOUT,
        epilog=_EXIT,
        usage="probe run [--config FILE] [--KEY VALUE ...] [-m] SCRIPT [ARGUMENT ...]",
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration, JSON or YAML")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as of python -m"
    )
    keys = parser.add_argument_group("keys of the configuration, which win over the file; values as in YAML")
    for name, key in KEYS.items():
        flags = [f"--{name}"] + ([f"--{name.replace('_', '-')}"] if "_" in name else [])
        keys.add_argument(
            *flags, dest=name, metavar="VALUE", action=_KeyOption, help=key.says.replace("%", "%%")
        )
    parser.add_argument("target", metavar="SCRIPT", help="the script, or the module")
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what the script is given"
    ).required = False
    parser.set_defaults(keys=argparse.Namespace())
    return parser
