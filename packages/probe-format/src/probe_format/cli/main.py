"""Run the command ``probe``: show, verify, recover and unpack dumps, and call the commands that other packages add.

None of its own commands needs a framework. A package adds a command by an entry point in the group
``probe.commands``: the command's name, and a function that takes the words after the name and returns the exit code.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

from probe_format.layout import MODES
from probe_format.own_code import OWN_MODULES
from probe_format.terminal import printable, say, tell

from .command import Command, add_dump, add_part, run_one_of, whole_number

#: The flags of ``show``.
_FLAGS = {
    "bad": "what is not finite: the call that made it first, how many records have it, and a few of them",
    "all": "with --bad: the tree of all of them",
    "full": "max, min and every digit, and the arguments that are not tensors",
    "brief": "names without their tensors",
    "stack": "with the line that made the call",
}

_EXIT = """\
exit codes:
  show     0  shown                       1  not a dump, or not readable
  verify   0  every rank is complete or recovered, or empty: the run ended before its first record
           1  not a dump, or too large     3  some rank is torn      4  some rank is damaged
  recover  0  everything recovered        1  nothing to recover     3  recovered in part
  unpack   0  the packs are files now     1  a rank is of a run that did not end, or not a dump
           4  some entry is damaged or missing: the packs of that rank stay, beside the files of the others
  all      2  wrong arguments, or a command that is not installed
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe``; those of the process when None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the process began with it closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot print
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # before the command began: it was being loaded
        tell("probe: stopped.")
        return 130
    except BrokenPipeError:
        # The reader has gone, as in `probe show ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(words: Sequence[str]) -> int:
    own = bool(words) and words[0] in (each.name for each in _OWN)
    if words and not own and not words[0].startswith("-"):
        added = _run_added(words[0], words[1:])
        if added is not None:
            return added
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Look at dumps by Probe and by msprobe, check them, and recover those of a killed run.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "show the version of each package, what computes statistics, and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=what)
    there = {} if own else {name: _describe(entry) for name, entry in added_commands().items()}
    return run_one_of(_OWN, parser, words, there, () if own else tuple(COMMANDS))


class _Version(argparse.Action):
    """Print the versions, which take a few milliseconds to find, only when they are asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from probe_format.tensors import native  # with numpy, which the other words do without

        way, none = native.WAY, "numpy; faster with probe-fast, which is built where there is a C compiler"
        say(*versions(), f"statistics: {f'probe-fast ({way})' if way else none}")
        parser.exit()


def _dump(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    add_part(parser)
    parser.add_argument("--mode", choices=MODES, help="only MindSpore's graphs, or only PyNative")


def _view(parser: argparse.ArgumentParser) -> None:
    _dump(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only records with TEXT in their name")
    parser.add_argument("--label", metavar="TEXT", help="only records of calls with this label")
    parser.add_argument("--level", choices=("L0", "L1"), help="only modules (L0) or only API calls (L1)")
    parser.add_argument("--depth", type=_positive, metavar="N", help="at most N levels of nesting")
    for flag, what in _FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=what)


def _positive(text: str) -> int:
    number = whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError("0 levels show nothing; write 1 or more")
    return number


def _work(arguments: argparse.Namespace) -> int:
    # Only now: help and a wrong word are answered without numpy and the reader.
    from .dump_commands import RUN

    return RUN[arguments.command](arguments)


_OWN = tuple(Command(name, what, options, _work) for name, options, what in (
    ("show", _view, "print the records as a tree by module, with shapes and norms"),
    ("verify", _dump, "check schema, checksums and tensor files: complete, recovered, empty, torn or damaged"),
    ("recover", _dump, "write the JSON files of a run that was killed, from its journal"),
    ("unpack", _dump, "make a file of each tensor in packs (tensor_files: packed), as msprobe has them"),
))  # fmt: skip
#: Commands of Probe's other packages: what to install for them, and what they do.
COMMANDS = {
    "check": ("probe-analysis", "run recorded calls again in float64: which is wrong"),
    "diff": ("probe-analysis", "compare two dumps: the first call that made a difference"),
    "export": ("probe-analysis", "write a dump as Parquet, safetensors, or for TensorBoard"),
    "kernel": ("probe-kernel", "look at kernel dumps by MindSpore and Ascend, convert and check them"),
    "nan": ("probe-analysis", "find the first value that is not finite"),
    "plan": ("probe-runtime", "say what a dump of a model would write, before the run"),
    "ranks": ("probe-analysis", "find ranks that should agree and do not"),
    "report": ("probe-analysis", "make a page of a dump, or of two, to look at in a browser"),
    "run": ("probe-runtime", "run a training script, and dump its steps"),
    "trend": ("probe-analysis", "follow a quantity over steps, layers and ranks"),
    "watch": ("probe-analysis", "show a run with task watch while it goes on"),
}


def added_commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="probe.commands")}


def versions() -> Iterator[str]:
    """Yield the name and version of each of Probe's packages that is installed."""
    packages = (package for package, _ in COMMANDS.values())
    for name in dict.fromkeys((*(module.replace("_", "-") for module in OWN_MODULES), *packages)):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def _describe(entry: EntryPoint) -> str:
    """Return a command's line in ``probe --help``, without loading it; for one not Probe's, its package's summary."""
    if entry.dist is None:
        return entry.value
    package, what = COMMANDS.get(entry.name, ("", ""))
    if entry.dist.name == package:
        return f"{what} (package {package})"
    summary = (entry.dist.metadata["Summary"] or "").rstrip(".")
    return printable(f"{summary[:1].lower()}{summary[1:]} (package {entry.dist.name})".lstrip())


def _run_added(name: str, words: Sequence[str]) -> int | None:
    """Run the command ``name`` and return its exit code; return None where no package has such a command.

    A command of one of Probe's packages that is not installed returns 2 and prints on stderr what to install.
    """
    entry = added_commands().get(name)
    if entry is not None:
        try:
            run = entry.load()
        except ModuleNotFoundError as error:  # another missing module is a fault inside the package
            if error.name is None or error.name.partition(".")[0] != entry.module.partition(".")[0]:
                raise
        else:
            code: int = run(words)
            return code
    dist = entry.dist if entry is not None else None
    package = COMMANDS.get(name, (None,))[0] if dist is None else dist.name
    if package is None:
        return None
    tell(f"probe {name}: not installed here. Install it with: pip install {package}")
    return 2
