"""What packages add to each other is found by entry points: no package names a module of another in a string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest
from members import EVERY, MEMBERS, toml, tree
from probe_format.cli.main import COMMANDS
from test_public_api import load

# The groups, and the package that looks for what is in them.
GROUPS = {"probe.commands", "probe.levels", "probe.frameworks"}

# Strings that name a package of another's, where none is imported by them.
NAMED = {
    "probe_format.own_code": "frames of these packages are left out of recorded stacks",
    "probe_mindspore.patching.apis": "reads the list of torch's names in probe-torch, without importing it",
    "probe_runtime.session.exporter": "runs the command probe in a process of its own",
}

_DOTTED = re.compile(r"probe_[a-z]+(\.\w+)*(:\w+)?")


def strings(tree: ast.AST) -> Iterator[str]:
    """Every string of a module that is not a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named(package: str, module: ast.Module) -> list[str]:
    """The strings of a module of ``package`` that are names of other packages of ours, or of modules of theirs."""
    found = [s for s in strings(module) if _DOTTED.fullmatch(s)]
    return [s for s in found if re.split(r"[.:]", s)[0] in MEMBERS.keys() - {package}]


def declared() -> list[tuple[str, str, str, str]]:
    """(package, group, name, what it names) of every entry point of ours."""
    return [
        (package, group, name, value)
        for package, folder in MEMBERS.items()
        for group, entries in toml(folder / "pyproject.toml")["project"].get("entry-points", {}).items()
        for name, value in entries.items()
    ]


def test_no_package_names_a_module_of_another_in_a_string() -> None:
    found = {
        module: names
        for module, path in EVERY.items()
        if (names := named(module.partition(".")[0], tree(path)))
    }
    assert found.keys() == NAMED.keys(), found


def test_the_command_knows_what_to_install_for_each_command_of_ours() -> None:
    ours = {
        name: package.replace("_", "-") for package, group, name, _ in declared() if group == "probe.commands"
    }
    assert ours == {name: package for name, (package, _) in COMMANDS.items()}


def test_a_string_that_names_a_module_is_found() -> None:
    text = 'import_module("probe_kernel.level2"); x = {"torch": "probe_torch.saving:f"}; log = "probe_save"'
    assert named("probe_save", ast.parse(text)) == ["probe_kernel.level2", "probe_torch.saving:f"]


@pytest.mark.parametrize(("package", "group", "name", "value"), declared())
def test_each_entry_point_loads(package: str, group: str, name: str, value: str) -> None:
    assert group in GROUPS
    load(package)
    found = {entry.name: entry for entry in entry_points(group=group)}
    assert name in found, f"the metadata of {package} is old: install it again"
    assert found[name].value == value
    assert found[name].load() is not None


def test_each_group_is_used() -> None:
    assert {group for _, group, _, _ in declared()} == GROUPS
