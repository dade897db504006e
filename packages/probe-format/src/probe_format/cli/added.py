"""Run the commands of ``probe`` that other packages add, such as ``probe kernel``.

A package adds one by an entry point in the group ``probe.commands``: the command's name, and a function that
takes the words after the name and returns the exit code.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

from probe_format.own_code import OWN_MODULES
from probe_format.terminal import printable, tell

#: Commands of Probe's other packages: what to install for them, and what they do.
COMMANDS = {
    "diff": ("probe-analysis", "compare two dumps: the first call that made a difference"),
    "export": ("probe-analysis", "write a dump as Parquet, or for TensorBoard"),
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


def describe(entry: EntryPoint) -> str:
    """Return a line for ``probe --help``, without loading the command: a stranger's is its package's own summary."""
    if entry.dist is None:
        return entry.value
    package, what = COMMANDS.get(entry.name, ("", ""))
    if entry.dist.name == package:
        return f"{what} (package {package})"
    summary = (entry.dist.metadata["Summary"] or "").rstrip(".")
    return printable(f"{summary[:1].lower()}{summary[1:]} (package {entry.dist.name})".lstrip())


def run_added(name: str, words: Sequence[str]) -> int | None:
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
    package = (
        entry.dist.name if entry is not None and entry.dist is not None else COMMANDS.get(name, (None,))[0]
    )
    if package is None:
        return None
    tell(f"probe {name}: not installed here. Install it with: pip install {package}")
    return 2
