"""Versions: one place each, told again in the changelog, and siblings that accept each other."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from members import MEMBERS, ROOT, source, toml, tree
from packaging.requirements import Requirement
from packaging.version import Version


def version(package: str) -> str:
    for node in tree(source(package) / "__init__.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise AssertionError(f"{package}/__init__.py has no __version__")


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_the_changelog_begins_with_this_version(package: str) -> None:
    text = (MEMBERS[package] / "CHANGELOG.md").read_text()
    assert text.startswith(f"# Changelog of {package.replace('_', '-')}\n")
    heads = re.findall(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", text, re.M)
    assert heads, "no heading like '## 0.1.0 (unreleased)' or '## 0.1.0 (2026-12-01)'"
    assert heads[0][0] == version(package)
    assert [v for v, _ in heads] == sorted((v for v, _ in heads), key=Version, reverse=True)
    assert all(state != "unreleased" for _, state in heads[1:])
    assert re.search(r"^- \S", text, re.M)


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_the_metadata_is_whole(package: str) -> None:
    meta = toml(MEMBERS[package] / "pyproject.toml")
    project = meta["project"]
    assert project["name"] == package.replace("_", "-")
    assert project["dynamic"] == ["version"]
    assert meta["tool"]["hatch"]["version"]["path"] == f"src/{package}/__init__.py"
    assert meta["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"src/{package}"]
    assert (MEMBERS[package] / project["readme"]).is_file()
    assert all((MEMBERS[package] / name).is_file() for name in project["license-files"])
    assert project["requires-python"] == ">=3.11"
    assert "Programming Language :: Python :: 3.11" in project["classifiers"]


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_a_package_accepts_the_siblings_beside_it(package: str) -> None:
    project = toml(MEMBERS[package] / "pyproject.toml")["project"]
    extras = project.get("optional-dependencies", {})
    for line in [*project["dependencies"], *(r for group in extras.values() for r in group)]:
        need = Requirement(line)
        sibling = need.name.replace("-", "_")
        if sibling in MEMBERS:
            assert need.specifier, f"{line}: give a range"
            assert need.specifier.contains(version(sibling), prereleases=True)
            assert not need.specifier.contains("1000"), f"{line}: the format can change, give an upper bound"
            offered = toml(MEMBERS[sibling] / "pyproject.toml")["project"].get("optional-dependencies", {})
            assert need.extras <= set(offered)


def test_frameworks_are_extras_only() -> None:
    for package, folder in MEMBERS.items():
        names = {Requirement(r).name for r in toml(folder / "pyproject.toml")["project"]["dependencies"]}
        assert not names & {"torch", "torch-npu", "mindspore"}, package


def test_the_lowest_torch_is_the_one_that_is_tested() -> None:
    """The extra accepts what has a column of its own; the package refuses what is below at import."""
    pinned = toml(ROOT / "hatch.toml")["envs"]["torch26"]["dependencies"]
    (lowest,) = (each.removeprefix("torch==") for each in pinned if each.startswith("torch"))
    offered = toml(MEMBERS["probe_torch"] / "pyproject.toml")["project"]["optional-dependencies"]["torch"]
    major, minor, *_ = lowest.split(".")
    assert offered == [f"torch>={major}.{minor}"]
    assert f"[:2]) < ({major}, {minor}):" in (source("probe_torch") / "__init__.py").read_text()
    for page in (ROOT / "README.md", MEMBERS["probe_torch"] / "README.md"):
        assert f"PyTorch {major}.{minor} or newer" in page.read_text(), page


def test_the_lowest_mindspore_is_the_one_that_is_tested() -> None:
    columns = [c for name, c in toml(ROOT / "hatch.toml")["envs"].items() if name.startswith("mindspore")]
    tested = [Requirement(line) for column in columns for line in column["dependencies"]]
    versions = [Version(str(r.specifier).removeprefix("==")) for r in tested if r.name == "mindspore"]
    offered = toml(MEMBERS["probe_mindspore"] / "pyproject.toml")["project"]["optional-dependencies"][
        "mindspore"
    ]
    numpy = "numpy<2"  # its own metadata allow what its extensions are not built for
    assert offered == [f"mindspore>={min(versions).major}.{min(versions).minor}", numpy]
    assert all(numpy in column["dependencies"] for column in columns)


def columns_of(python: str, environments: dict[str, Any]) -> dict[str, str]:
    """Return the scripts of each environment that runs on a Python, by the environment's name.

    An environment that names no Python has the one that hatch itself runs on: 3.11 in CI.
    """
    found = {}
    for name, environment in environments.items():
        template = environments.get(environment.get("template", ""), {})
        if environment.get("python", template.get("python", "3.11")) == python:
            found[name] = str(environment.get("scripts", template.get("scripts", "")))
    return found


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_ci_runs_each_python_that_is_claimed(package: str) -> None:
    environments = toml(ROOT / "hatch.toml")["envs"]
    in_ci = set(re.findall(r"(\w[\w-]*):", environments["test"]["scripts"]["all"]))
    classifiers = toml(MEMBERS[package] / "pyproject.toml")["project"]["classifiers"]
    claimed = [m[1] for line in classifiers if (m := re.search(r"Python :: (3\.\d+)$", line))]
    assert claimed
    for python in claimed:
        columns = columns_of(python, environments)
        # The column `test` runs pytest without a path, which is every test; others name folders.
        ran = [n for n, s in columns.items() if n == "test" or f"tests/{package.removeprefix('probe_')}" in s]
        assert in_ci & set(ran), (
            f"{package} claims Python {python}: no column of `test:all` runs its tests there"
        )


@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_the_python_that_is_tried_by_hand_runs_every_package(package: str) -> None:
    scripts = columns_of("3.12", toml(ROOT / "hatch.toml")["envs"])
    assert any(f"tests/{package.removeprefix('probe_')}" in script for script in scripts.values())
