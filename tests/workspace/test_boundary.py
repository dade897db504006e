"""Who may import whom. The tables are the rules; a new dependency is a decision, and is made here."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from import_graph import graph, imports_of, reach
from members import MEMBERS, modules, source

FRAMEWORKS = {"torch", "torch_npu", "mindspore", "mindspeed", "tensorflow", "jax"}

# What a package may import when it is imported, besides the standard library and itself.
MODULE_LEVEL = {
    "probe_format": {"attrs", "numpy", "orjson", "yaml"},
    "probe_torch": {"attrs", "numpy", "probe_format", "probe_save", "torch", "yaml"},
    "probe_mindspore": {"attrs", "mindspore", "numpy", "probe_format", "probe_save"},
    "probe_save": {"attrs", "numpy", "probe_format"},
    "probe_kernel": {"attrs", "numpy", "probe_format"},
}

# (module or package, what it may import) inside a function or a try/except ImportError: optional things.
OPTIONAL = {
    ("probe_format.arrays", "ml_dtypes"),  # gives back bfloat16 and float8 as such where it is installed
    ("probe_format.arrays", "torch"),  # the one place that opens a .pt file
    ("probe_format.checksum", "isal"),  # the extra "fast"
    ("probe_format.fused", "numkong"),  # the same
    ("probe_torch", "torch_npu"),
    ("probe_torch", "mindspeed"),
    ("probe_torch", "numkong"),
}

# Reading never loads writing: an analysis tool must not be able to change a dump by accident.
READ_SIDE = ("read", "dump", "stack", "construct", "report", "verify", "show")
WRITE_SIDE = {
    *("write", "stream", "recorder", "collector", "works", "segments", "whereabouts", "plan"),
    *("step", "session", "preflight", "clearing", "single"),
}

# One place each for a library with pitfalls of its own.
ONLY_IN = {"orjson": {"probe_format.jsonio"}}

JUNK_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}

ALL = [i for package in MEMBERS for i in graph(package)]


def _optional(by: str, top: str) -> bool:
    return (by, top) in OPTIONAL or (by.partition(".")[0], top) in OPTIONAL


def test_the_five_packages_are_the_ones_with_rules() -> None:
    assert set(MODULE_LEVEL) == set(MEMBERS)


def test_a_package_imports_only_what_its_table_allows() -> None:
    wrong = []
    for i in ALL:
        package = i.by.partition(".")[0]
        if i.top == package or i.top in sys.stdlib_module_names or i.top == "__future__":
            continue
        allowed = i.top in MODULE_LEVEL[package] or (
            i.where in ("function", "guarded") and _optional(i.by, i.top)
        )
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


@pytest.mark.parametrize("module", READ_SIDE)
def test_reading_does_not_reach_writing(module: str) -> None:
    name = f"probe_format.{module}"
    assert name in modules("probe_format"), f"{name} is gone: correct READ_SIDE"
    chains = reach("probe_format", name, frozenset({"module", "guarded", "function"}))
    for write in WRITE_SIDE & {m.removeprefix("probe_format.") for m in chains}:
        raise AssertionError(" -> ".join(map(str, chains[f"probe_format.{write}"])))


def test_write_side_exists() -> None:
    assert {f"probe_format.{m}" for m in WRITE_SIDE} <= set(modules("probe_format"))


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_no_import_cycle(package: str) -> None:
    for module in modules(package):
        if module != package:
            chains = reach(package, module, frozenset({"module", "guarded"}))
            assert module not in chains, " -> ".join(map(str, chains[module]))


def test_no_drawer_modules() -> None:
    names = {part for package in MEMBERS for m in modules(package) for part in m.split(".")}
    assert not names & JUNK_NAMES


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_each_package_is_typed(package: str) -> None:
    assert (source(package) / "py.typed").is_file()


def test_importing_probe_format_loads_no_framework() -> None:
    """The same, seen by running: every module of probe_format, in a process of its own."""
    code = """
        import importlib, sys
        for name in sys.argv[1:]:
            if not name.endswith("__main__"):
                importlib.import_module(name)
        print(sorted({m.partition(".")[0] for m in sys.modules} & %r))
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) % FRAMEWORKS, *modules("probe_format")],
        env={"PYTHONPATH": str(source("probe_format").parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


def test_the_reader_needs_only_numpy_orjson_and_attrs() -> None:
    """An analysis tool opens a dump where neither a framework, nor YAML, nor the fast extra is installed."""
    code = """
        import sys
        for name in ("torch", "mindspore", "yaml", "numkong", "ml_dtypes"):
            sys.modules[name] = None
        import probe_format, probe_format.read
        assert callable(probe_format.open)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"PYTHONPATH": str(source("probe_format").parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


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
