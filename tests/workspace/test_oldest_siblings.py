"""Each package works with the oldest version of its siblings that its metadata allows.

The oldest is the one under a tag ``<package>-<version>``; where the range allows no tagged version, it is the working
tree's. So until the first release this tests the working tree with itself, and from then on it fails as soon as a
package uses something of a sibling that the lower end of its range did not have: raise that end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from import_graph import graph
from members import MEMBERS, ROOT
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from releases import Release, build_wheel, oldest, releases

NAMES = frozenset(package.replace("_", "-") for package in MEMBERS)


def release(version: str, tag: str | None = None, **needs: str) -> Release:
    return Release(Version(version), {k: SpecifierSet(v) for k, v in needs.items()}, tag)


def test_the_oldest_that_fits_is_taken_and_the_tagged_one_before_the_working_tree() -> None:
    tagged = [release(v, f"a-{v}") for v in ("0.2.0", "0.1.10", "0.1.9", "0.1.0")]
    here = release("0.2.0")
    for accepted, expected in [
        (">=0.1,<0.3", "a-0.1.0"), (">=0.1.1,<0.3", "a-0.1.9"), (">0.1.9,<0.3", "a-0.1.10"), (">=0.2,<0.3", "a-0.2.0"),
    ]:  # fmt: skip
        assert oldest({"a": SpecifierSet(accepted)}, {"a": [*tagged, here]})["a"].tag == expected
    assert oldest({"a": SpecifierSet(">=0.2.1,<0.3")}, {"a": [*tagged, release("0.2.1")]})["a"].tag is None
    with pytest.raises(LookupError, match=r"a<0.4,>=0.3: there are only 0.2.0, 0.1.10"):
        oldest({"a": SpecifierSet(">=0.3,<0.4")}, {"a": [*tagged, here]})


def test_what_a_sibling_needs_narrows_the_choice() -> None:
    offered = {
        "a": [release("0.1.0", "a-0.1.0"), release("0.1.5", "a-0.1.5")],
        "b": [release("0.1.0", "b-0.1.0", a=">=0.1.2"), release("0.2.0", "b-0.2.0", c=">=1")],
        "c": [release("1.0.0")],
    }
    both = {"a": SpecifierSet(">=0.1"), "b": SpecifierSet(">=0.1")}
    assert {name: r.tag for name, r in oldest(both, offered).items()} == {"a": "a-0.1.5", "b": "b-0.1.0"}
    newer = oldest({"a": SpecifierSet(">=0.1"), "b": SpecifierSet(">=0.2")}, offered)
    assert {name: r.tag for name, r in newer.items()} == {"a": "a-0.1.0", "b": "b-0.2.0", "c": None}


def test_a_tagged_release_is_built_from_its_tag(tmp_path: Path) -> None:
    """A checkout with one release: the wheel has the tag's version, not what the working tree has become."""
    folder = tmp_path / "packages" / "one-thing"
    package = folder / "src" / "one_thing" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text('__version__ = "0.1.0"\n')
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "one-thing"\nrequires-python = ">=3.11"\n'
        'dynamic = ["version"]\ndependencies = ["probe-format>=0.1,<0.2", "attrs"]\n'
        '[tool.hatch.version]\npath = "src/one_thing/__init__.py"\n'
    )
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    commits = [["add", "."], ["commit", "-qm", "one"], ["tag", "one-thing-0.1.0"], ["tag", "one-thing-old"]]
    for words in [["init", "-q"], *commits]:
        subprocess.run([*git, *words], check=True)
    package.write_text('__version__ = "0.1.1"\n')
    first, here = releases(tmp_path, "one-thing", NAMES)
    assert (str(first.version), first.tag) == ("0.1.0", "one-thing-0.1.0")
    assert (str(here.version), here.tag) == ("0.1.1", None)
    assert first.needs == {"probe-format": SpecifierSet(">=0.1,<0.2")}
    (tmp_path / "built").mkdir()
    for version in (first, here):
        wheel = build_wheel(tmp_path, "one-thing", version, tmp_path / "built")
        assert wheel.name == f"one_thing-{version.version}-py3-none-any.whl"


# Runs where only wheels are importable before what the environment has: the packages come from there, or it fails.
TAKE = """
import importlib, sys
folder, *uses = sys.argv[1:]
sys.path.insert(0, folder)
missing = []
for use in uses:
    module, _, name = use.partition(":")
    found = importlib.import_module(module)
    assert found.__file__.startswith(folder), f"{found.__file__} is not in {folder}"
    if name and not hasattr(found, name):
        try:
            importlib.import_module(f"{module}.{name}")
        except ImportError:
            missing.append(use)
print(*missing)
"""


@pytest.fixture(scope="module")
def wheel_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Release], Path]:
    """Return the wheel of a release, which is built once."""
    made: dict[tuple[str, str | None], Path] = {}

    def wheel(name: str, version: Release) -> Path:
        if (name, version.tag) not in made:
            made[name, version.tag] = build_wheel(ROOT, name, version, tmp_path_factory.mktemp(name))
        return made[name, version.tag]

    return wheel


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(MEMBERS))
def test_everything_used_of_siblings_is_in_the_oldest_that_is_allowed(
    package: str, wheel_of: Callable[[str, Release], Path], tmp_path: Path
) -> None:
    name = package.replace("_", "-")
    offered = {sibling: releases(ROOT, sibling, NAMES) for sibling in NAMES}
    mine = offered[name][-1]
    chosen = oldest(mine.needs, offered)
    assert set(mine.needs) <= set(chosen)
    wheels = [wheel_of(name, mine), *(wheel_of(sibling, version) for sibling, version in chosen.items())]
    target = tmp_path / "installed"
    for wheel in wheels:  # pip itself installs them in test_wheels.py
        ZipFile(wheel).extractall(target)
    uses = sorted({f"{i.of}:{i.name or ''}" for i in graph(package) if i.top in MEMBERS and i.top != package})
    assert bool(uses) == bool(mine.needs), "a package declares those siblings that it imports"
    command = [sys.executable, "-c", TAKE, str(target), *uses]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"{name} uses what the oldest version that it accepts does not have"
