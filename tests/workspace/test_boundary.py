"""Who may import whom. The tables are the rules; a new dependency is a decision, and is made here."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest
from import_graph import Import, graph, imports_of, reach
from members import EVERY, MEMBERS, modules, source, tree
from test_public_api import LISTED as DOORS

FRAMEWORKS = {"torch", "torch_npu", "mindspore", "mindspeed", "tensorflow", "jax"}

# The packages, from the ground up: each imports only from rows above its own, and only what a door there lists.
ORDER: tuple[set[str], ...] = (
    {"probe_fast"},
    {"probe_format"},
    {"probe_runtime", "probe_analysis"},
    {"probe_save", "probe_kernel"},
    {"probe_torch", "probe_mindspore"},
)

# The rooms of each package (folders, and the modules beside them), from the ground up: each imports only from rows
# above its own. ``face`` is the package's ``__init__``; its version is the one name that a room may take from it.
ROOMS: dict[str, tuple[set[str], ...]] = {
    "probe_fast": ({"library", "text"}, {"face"}),
    "probe_format": (
        {
            "checksum",
            "excerpts",
            "json_floats",
            "jsonio",
            "layout",
            "on_demand",
            "own_code",
            "safe_files",
            "statistics",
            "suggest",
            "task",
            "terminal",
        },
        {"errors", "values"},
        {"names", "plain_files"},
        {"journal", "schema", "tensors"},
        {"read"},
        {"watch", "write"},
        {"cli"},
        {"face"},
        {"__main__"},
    ),
    "probe_runtime": (
        {"demo", "environment", "frameworks", "notice", "yaml_text"},
        {"config", "earlier_dump", "patching"},
        {"describe", "select", "watch"},
        {"collect"},
        {"planning", "session"},
        {"auto"},
        {"face"},
    ),
    "probe_torch": (
        {"aside", "compiling", "ranks", "submodules", "training_threads"},
        {"optimizer_hooks", "tensors"},
        {"patching"},
        {"hooks", "replay"},
        {"dropout", "saving", "watch"},
        {"loop", "perturb", "seed", "session"},
        {"debugger"},
        {"auto", "callbacks", "planning"},
        {"face"},
        {"demo_model"},
        {"demo"},
    ),
    "probe_mindspore": (
        {"module_kind", "ranks"},
        {"tensors"},
        {"patching"},
        {"hooks", "replay"},
        {"graph"},
        {"dropout", "saving", "watch"},
        {"loop", "perturb", "seed", "session"},
        {"debugger"},
        {"auto", "callbacks", "planning"},
        {"face"},
        {"demo_model"},
        {"demo"},
    ),
    "probe_save": (
        {"frameworks", "uncompiled"},
        {"step_journal"},
        {"described_values"},
        {"awaited_gradients"},
        {"saved_step"},
        {"saver"},
        {"current"},
        {"face"},
    ),
    "probe_kernel": (
        {"files", "graph", "output_folder"},
        {"read"},
        {"trace"},
        {"control", "convert"},
        {"ascend", "export"},
        {"commands", "mindspore", "torch"},
        {"cli", "level2"},
        {"face"},
    ),
    "probe_analysis": (
        {"compare", "result", "whole_file"},
        {"calls"},
        {"align", "export", "nonfinite", "replay"},
        {"diff", "ranks", "trend"},
        {"live", "report"},
        {"cli"},
        {"face"},
    ),
}

# What a package may import when it is imported, besides the standard library, itself and what ORDER allows.
MODULE_LEVEL: dict[str, set[str]] = {
    "probe_fast": set(),
    "probe_format": {"attrs", "numpy", "orjson"},
    "probe_runtime": {"attrs", "numpy", "xxhash", "yaml"},
    "probe_torch": {"attrs", "numpy", "torch"},
    "probe_mindspore": {"attrs", "mindspore", "numpy"},
    "probe_save": {"attrs", "numpy"},
    "probe_kernel": {"attrs", "numpy"},
    "probe_analysis": {"attrs", "numpy", "yaml"},
}

# (module, what it imports): modules that are imported inside a function, and only where that library is.
BEHIND = {("probe_torch.tensors.partials", "triton")}

# (module or package, what it may import) inside a function or a try/except ImportError: optional things.
OPTIONAL = {
    (
        "probe_format.tensors.files",
        "ml_dtypes",
    ),  # gives back bfloat16 and float8 as such where it is installed
    ("probe_format.tensors.files", "torch"),  # the one place that opens a .pt file
    ("probe_format.checksum", "isal"),  # the extra "fast"
    ("probe_analysis.result", "pandas"),  # the extra "pandas"
    ("probe_analysis.trend.picture", "matplotlib"),  # the extra "plot"
    ("probe_analysis.export.tables", "pyarrow"),  # the extra "export"
    ("probe_analysis.export.store", "fsspec"),  # the same
    ("probe_analysis.calls.tabled", "pyarrow"),  # the same
    ("probe_analysis.calls.engine", "distributed"),  # the extra "dask"
    ("probe_analysis.live.screen", "rich"),  # the extra "watch"
    ("probe_analysis.export.events", "tensorboard"),  # the extra "tensorboard"
    ("probe_torch", "torch_npu"),
    ("probe_torch", "mindspeed"),
    ("probe_torch.callbacks.lightning", "lightning"),
    ("probe_torch.callbacks.lightning", "pytorch_lightning"),
    ("probe_torch.callbacks.transformers", "transformers"),
}

# One place each for a library with pitfalls of its own.
ONLY_IN = {
    "orjson": {"probe_format.jsonio"},
    "yaml": {"probe_runtime.yaml_text", "probe_runtime.config.config_file", "probe_analysis.align.mapping"},
}

# Whose dicts begin with a key "k": the functions that make the journal's events.
MAKES_EVENTS = {"probe_format.journal.events", "probe_format.journal.version1", "probe_format.watch.writer"}

JUNK_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}

ALL = [i for package in MEMBERS for i in graph(package)]


def _optional(by: str, top: str) -> bool:
    return (by, top) in OPTIONAL or (by.partition(".")[0], top) in OPTIONAL


def level_of(name: str, order: tuple[set[str], ...]) -> int:
    """Return the row of a name, from the ground up. Raises AssertionError where no row has it."""
    rows = [i for i, row in enumerate(order) if name in row]
    assert len(rows) == 1, f"{name} is in {len(rows)} rows of the table: a new room or module needs its place"
    return rows[0]


def room_of(module: str) -> str:
    """Return the room of a module of its package: the first folder, or the module itself where it is in none."""
    return module.split(".")[1] if "." in module else "face"


def wrong_arrows(package: str, order: tuple[set[str], ...], imports: list[Import]) -> list[str]:
    """Return the imports within a package that do not lead to a row above their own."""
    wrong = []
    for i in imports:
        by, of = room_of(i.by), room_of(i.of)
        if i.top != package or by == of or (of == "face" and i.name == "__version__"):
            continue
        if level_of(of, order) >= level_of(by, order):
            wrong.append(str(i))
    return wrong


def test_every_package_has_its_rules() -> None:
    assert set(MODULE_LEVEL) == set(MEMBERS) == set(ROOMS) == {p for row in ORDER for p in row}


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_every_room_has_its_row_and_every_row_its_room(package: str) -> None:
    rooms = {room_of(m) for m in modules(package)}
    assert rooms == {room for row in ROOMS[package] for room in row}


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_rooms_import_from_rows_above_their_own(package: str) -> None:
    wrong = wrong_arrows(package, ROOMS[package], graph(package))
    assert not wrong, "\n".join(wrong)


def test_an_arrow_turned_round_is_found() -> None:
    """The rule can convict: reading that imports writing, and a room that imports its package's face."""
    for of, name in (("probe_format.write.rank_writer", "RankWriter"), ("probe_format", "open")):
        turned = Import("probe_format.read.dump", of, 1, "module", name)
        assert wrong_arrows("probe_format", ROOMS["probe_format"], [turned]) == [str(turned)]


def test_packages_import_downward_and_through_doors() -> None:
    """What another package uses is offered by a door: the package, a room, or a module beside the rooms."""
    wrong = []
    for i in ALL:
        package = i.by.partition(".")[0]
        if i.top == package or i.top not in MEMBERS:
            continue
        if level_of(i.top, ORDER) >= level_of(package, ORDER):
            wrong.append(f"{i}: upward")
        elif i.of.count(".") > 1:
            wrong.append(f"{i}: private to {i.top}; take it from {'.'.join(i.of.split('.')[:2])}")
        elif f"{i.of}.{i.name}" in DOORS:
            continue
        elif i.name is None:
            wrong.append(f"{i}: say which names, with from ... import")
        elif i.of not in DOORS or i.name not in DOORS[i.of]:
            wrong.append(f"{i}: {i.name} is not in the list of what {i.of} offers (test_public_api.py)")
    assert not wrong, "\n".join(wrong)


def test_a_package_imports_only_what_its_table_allows() -> None:
    wrong = []
    for i in ALL:
        package = i.by.partition(".")[0]
        if i.top in MEMBERS or i.top in sys.stdlib_module_names or i.top == "__future__":
            continue
        allowed = i.top in MODULE_LEVEL[package] or (i.by, i.top) in BEHIND
        allowed = allowed or (i.where in ("function", "guarded") and _optional(i.by, i.top))
        if not allowed:
            wrong.append(str(i))
    assert not wrong, "\n".join(wrong)


def test_probe_format_never_imports_a_framework_when_imported() -> None:
    mine = [i for i in ALL if i.by.startswith("probe_format") and i.top in FRAMEWORKS]
    wrong = [str(i) for i in mine if i.where != "function"]
    assert not wrong, "\n".join(wrong)


def test_no_framework_switch_in_probe_format() -> None:
    """A reader for all frameworks knows none of them: no module is named after one."""
    assert not [m for m in modules("probe_format") if set(m.split(".")) & FRAMEWORKS]


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_a_library_with_pitfalls_is_imported_in_one_place(library: str) -> None:
    assert {i.by for i in ALL if i.top == library} == ONLY_IN[library]


def test_events_of_the_journal_are_made_in_one_place() -> None:
    def is_event(node: ast.AST) -> bool:
        return isinstance(node, ast.Dict) and any(
            isinstance(k, ast.Constant) and k.value == "k" for k in node.keys
        )

    assert {name for name, path in EVERY.items() if any(map(is_event, ast.walk(tree(path))))} == MAKES_EVENTS


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_no_import_cycle(package: str) -> None:
    for module in modules(package):
        if module != package:
            chains = reach(package, module, frozenset({"module", "guarded"}))
            assert module not in chains, " -> ".join(map(str, chains[module]))


def test_no_drawer_modules() -> None:
    names = {part for module in EVERY for part in module.split(".")}
    assert not names & JUNK_NAMES


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_each_package_is_typed(package: str) -> None:
    assert (source(package) / "py.typed").is_file()


def with_probe_format_alone(code: str, *words: str) -> str:
    """Run code in a process that finds no other package of Probe's; return what it printed.

    words: its arguments. Raises AssertionError, with its stderr, where it fails.
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *words],
        env={"PYTHONPATH": str(source("probe_format").parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_probe_format_loads_no_framework() -> None:
    """The same, seen by running: every module of probe_format, in a process of its own."""
    code = """
        import importlib, sys
        for name in sys.argv[1:]:
            if not name.endswith("__main__"):
                importlib.import_module(name)
        print(sorted({m.partition(".")[0] for m in sys.modules} & %r))
    """
    assert with_probe_format_alone(code % FRAMEWORKS, *modules("probe_format")).strip() == "[]"


def test_the_reader_needs_only_numpy_orjson_and_attrs() -> None:
    """An analysis tool opens a dump where neither a framework, nor YAML, nor the fast extra is installed."""
    code = """
        import sys
        for name in ("torch", "mindspore", "yaml", "probe_fast", "ml_dtypes", "probe_runtime"):
            sys.modules[name] = None
        import probe_format, probe_format.read.dump
        assert callable(probe_format.open)
    """
    with_probe_format_alone(code)


# Standard modules that take milliseconds to import, and that reading a dump does without.
HEAVY = {
    "argparse", "difflib", "hashlib", "hmac", "importlib.metadata", "inspect", "pickletools", "random", "secrets",
    "subprocess", "yaml",
}  # fmt: skip


def loaded_by(*statements: str) -> list[set[str]]:
    """Return the modules that each statement loads, in a process that has imported attrs, numpy and orjson."""
    code = """
        import sys
        import attr, numpy, orjson
        for statement in sys.argv[1:]:
            before = set(sys.modules)
            exec(statement)
            print(*(set(sys.modules) - before))
    """
    return [set(line.split()) for line in with_probe_format_alone(code, *statements).splitlines()]


def test_importing_probe_format_loads_no_more_than_is_used() -> None:
    """The face alone at first; then the reader: no command, no writer, no journal, no tensor files."""
    face, errors, reader, twice = loaded_by(
        "import probe_format",
        "probe_format.FormatError",
        "probe_format.open",
        "from probe_format import Dump, open",
    )
    assert face == {"probe_format", "probe_format.on_demand"}
    assert {name for name in errors if name.startswith("probe_format")} == {
        "probe_format.errors",
        "probe_format.excerpts",
        "probe_format.terminal",
    }
    assert not reader & HEAVY
    rooms = ("probe_format.cli", "probe_format.journal", "probe_format.tensors", "probe_format.write")
    assert "probe_format.read.dump" in reader
    assert not {name for name in reader if name.startswith(rooms)}
    assert not twice


def test_probe_help_loads_no_reader() -> None:
    code = """
        import sys
        from probe_format.cli.main import main
        try:
            main(["--help"])
        except SystemExit:
            pass
        print(*sys.modules)
    """
    loaded = set(with_probe_format_alone(code).splitlines()[-1].split())
    assert {"probe_format.cli.main", "argparse"} <= loaded
    assert not {
        name for name in loaded if name.startswith(("numpy", "probe_format.read", "probe_format.journal"))
    }


def closure(module: str) -> set[str]:
    """Return the modules of our packages that an import of one loads, by the graph: it needs no framework."""
    loads: dict[str, set[str]] = {}
    for i in ALL:
        if i.where in ("module", "guarded") and i.top in MEMBERS:
            loads.setdefault(i.by, set()).add(i.of)
    found: set[str] = set()
    todo = {module}
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= {name.rpartition(".")[0], *loads.get(name, ())} - found - {""}
    return found


@pytest.mark.parametrize("package", ["probe_torch", "probe_mindspore", "probe_save"])
def test_a_training_run_loads_no_reader_no_planning_and_no_demo(package: str) -> None:
    found = closure(package)
    assert {"probe_format.write.rank_writer", "probe_runtime.config.config"} <= found
    assert not {
        name for name in found if set(name.split(".")) & {"read", "cli", "planning", "demo", "demo_model"}
    }


def test_the_closure_is_what_an_import_loads() -> None:
    (writer, recovery) = loaded_by("import probe_format.write", "probe_format.write.recover")
    assert {name for name in writer if name.startswith("probe_format")} == closure("probe_format.write")
    assert {name for name in recovery if name.startswith("probe_format")} == (
        closure("probe_format.write.recovery") - closure("probe_format.write")
    )


def test_names_loaded_on_demand_are_ordinary_names() -> None:
    """They are in ``dir()``, come with ``*``, are found once, and are pickled under the module that defines them."""
    code = """
        import pickle, probe_format
        assert set(probe_format.__all__) <= set(dir(probe_format))
        exec("from probe_format import *")
        assert probe_format.Dump is vars(probe_format)["Dump"] is Dump
        assert pickle.loads(pickle.dumps(probe_format.Step)) is Step
        try:
            probe_format.Dumb
        except AttributeError as error:
            assert (error.name, error.obj) == ("Dumb", probe_format)
        else:
            raise AssertionError
    """
    with_probe_format_alone(code)


def test_the_graph_sees_each_kind_of_import(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The tests above are only as good as the graph: one file with every form of import."""
    path = tmp_path / "m.py"
    path.write_text(
        textwrap.dedent(
            """
            import os, a.b
            from . import sibling, NAME
            from .sub import thing
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                import c
            try:
                import d
            except ImportError:
                d = None
            def f():
                import e
            class K:
                import g
                def method(self):
                    from h import i
            """
        )
    )
    seen = {(i.of, i.where) for i in imports_of("p.m", path, frozenset({"p", "p.m", "p.sibling", "p.sub"}))}
    assert seen == {
        ("os", "module"),
        ("a.b", "module"),
        ("p.sibling", "module"),
        ("p", "module"),
        ("p.sub", "module"),
        ("typing", "module"),
        ("c", "typing"),
        ("d", "guarded"),
        ("e", "function"),
        ("g", "module"),
        ("h", "function"),
    }
