"""One module warns and logs, and one prints: nothing outwards raises into a run or gives a terminal orders."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from members import EVERY, tree

WARNS, PRINTS = "probe_runtime.notice", "probe_format.terminal"

# Modules that may do one thing more, and why.
ALLOWED = {
    ("probe_format.cli.main", "sys.stdout"): "ends quietly when the reader has gone; sets what stays unprintable",
    ("probe_format.cli.command", "sys.stdout"): "goes on to the exit code when the reader has gone",
    ("probe_analysis.cli.trend", "sys.stdout"): "asks for the encoding",
    ("probe_analysis.cli.watch", "sys.stdout"): "the same",
    ("probe_kernel.control.kernel_patterns", "warnings.catch_warnings"): "a pattern of the user's is tried",
    ("probe_kernel.control.kernel_patterns", "warnings.simplefilter"): "the same",
    ("probe_runtime.auto.start_up.sitecustomize", "sys.stderr"): "says that nothing of Probe's could be imported",
    ("probe_torch.planning.planner", "warnings.catch_warnings"): "silences torch",
    ("probe_torch.planning.planner", "warnings.filterwarnings"): "the same",
}  # fmt: skip

#: What goes outwards, by the only module that may use it.
DOORS = {
    "warnings": WARNS, "logging": WARNS, "print": PRINTS, "sys.stdout": PRINTS, "sys.stderr": PRINTS,
    "sys.__stdout__": PRINTS, "sys.__stderr__": PRINTS, "traceback.print": PRINTS, "pprint": PRINTS,
}  # fmt: skip


def outward(source: ast.Module) -> Iterator[str]:
    """What a source uses of these, as ``warnings.warn``, by whatever name it is imported."""
    names = {"print": "print"}
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                      for a in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            yield from (f"{node.module}.{a.name}" for a in node.names if door(f"{node.module}.{a.name}"))
    for node in ast.walk(source):
        used = ""
        if isinstance(node, ast.Name):
            used = names.get(node.id, "") if node.id == "print" else ""
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = f"{names.get(node.value.id, '')}.{node.attr}"
        if door(used):
            yield used


def door(used: str) -> str | None:
    """The module that may use it; None where every module may."""
    for what, only in DOORS.items():
        if used == what or used.startswith((f"{what}.", f"{what}_")):
            return only
    return None


@pytest.mark.parametrize(
    "text",
    ["import warnings\nwarnings.warn('')", "import warnings as w\nw.showwarning", "from warnings import warn",
     "import logging\nlogging.getLogger('x')", "from logging import getLogger", "print()", "map(print, ())",
     "import sys\nsys.stderr.write('')", "from sys import stdout", "from pprint import pprint",
     "import traceback\ntraceback.print_exc()"],
)  # fmt: skip
def test_what_goes_outwards_is_seen(text: str) -> None:
    assert list(outward(ast.parse(text)))


def test_one_module_warns_and_one_prints() -> None:
    found = {
        (module, used)
        for module, path in EVERY.items()
        for used in outward(tree(path))
        if door(used) != module
    }
    assert found == ALLOWED.keys()
