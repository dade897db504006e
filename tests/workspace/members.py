"""Where things are in the workspace, for the tests about the workspace itself."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "packages"
TWINS = ("probe_torch", "probe_mindspore")
# import name -> folder of the package
MEMBERS = {p.parent.name.replace("-", "_"): p.parent for p in sorted(PACKAGES.glob("*/src"))}
#: The distribution that has no code, and names the others.
META = PACKAGES / "probe-all"


def source(package: str) -> Path:
    """The folder of the import package (``.../src/probe_format``)."""
    return MEMBERS[package] / "src" / package


def modules(package: str) -> dict[str, Path]:
    """Dotted module name -> file, for every module of a package."""
    found = {}
    for path in sorted(source(package).rglob("*.py")):
        parts = path.relative_to(source(package).parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


#: Dotted module name -> file, for every module of ours.
EVERY = {name: path for package in MEMBERS for name, path in modules(package).items()}


@cache
def tree(path: Path) -> ast.Module:
    """A source, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
