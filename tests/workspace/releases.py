"""Which versions of a package exist (tags of git and the working tree), and the oldest that fit together."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

Needs = Mapping[str, SpecifierSet]


@frozen
class Release:
    """A version of a package, and what it depends on.

    needs: sibling (its distribution's name) -> the range of versions that is accepted, also by an extra.
    tag: the tag of git that holds it; None for the working tree.
    """

    version: Version
    needs: Needs
    tag: str | None = None


def releases(root: Path, package: str, siblings: frozenset[str]) -> list[Release]:
    """Return the versions of a package: those tagged ``<package>-<version>``, and the working tree's last.

    root: the top of a checkout. A clone without tags has the working tree's version alone.
    package, siblings: names of distributions, as in ``probe-format``.
    """
    found = []
    for tag in _git(root, "tag", "--list", f"{package}-*").decode().split():
        if re.fullmatch(r"\d[\w.]*", number := tag.removeprefix(f"{package}-")):
            project = _git(root, "show", f"{tag}:packages/{package}/pyproject.toml").decode()
            found.append(Release(Version(number), _needs(project, siblings), tag))
    folder = root / "packages" / package
    source = (folder / "src" / package.replace("-", "_") / "__init__.py").read_text()
    number = re.search(r'^__version__ = "(.+)"$', source, re.M)[1]  # type: ignore[index]
    return [*found, Release(Version(number), _needs((folder / "pyproject.toml").read_text(), siblings))]


def oldest(needs: Needs, offered: Mapping[str, list[Release]]) -> dict[str, Release]:
    """Return the oldest release of each sibling that the needs allow, and the needs of those releases too.

    needs: what the package itself accepts. offered: package -> its releases. Where a release is tagged and the
    working tree still has the same version, the tagged one is taken.
    Raises LookupError when no release of a sibling fits.
    """
    ranges = dict(needs)
    while True:
        chosen = {name: _oldest(name, accepted, offered[name]) for name, accepted in ranges.items()}
        wider = dict(ranges)
        for release in chosen.values():
            for name, accepted in release.needs.items():
                wider[name] = wider.get(name, SpecifierSet()) & accepted
        if wider == ranges:
            return chosen
        ranges = wider


def build_wheel(root: Path, package: str, release: Release, folder: Path) -> Path:
    """Build the wheel of a release below a folder: a tagged one from what git has under its tag."""
    source = root / "packages" / package
    if release.tag is not None:
        archive = _git(root, "archive", release.tag, f"packages/{package}")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder / release.tag, filter="data")
        source = folder / release.tag / "packages" / package
    made = folder / f"wheel-of-{package}-{release.version}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = made.glob("*.whl")
    return wheel


def _oldest(name: str, accepted: SpecifierSet, offered: list[Release]) -> Release:
    fitting = [r for r in offered if accepted.contains(r.version, prereleases=True)]
    if not fitting:
        raise LookupError(f"{name}{accepted}: there are only {', '.join(str(r.version) for r in offered)}")
    return min(fitting, key=lambda release: (release.version, release.tag is None))


def _needs(project: str, siblings: frozenset[str]) -> dict[str, SpecifierSet]:
    about = tomllib.loads(project)["project"]
    lines = [
        *about["dependencies"],
        *(line for extra in about.get("optional-dependencies", {}).values() for line in extra),
    ]
    return {need.name: need.specifier for need in map(Requirement, lines) if need.name in siblings}


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
