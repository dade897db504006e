"""Give mkdocs the pages of the workspace, each at its own path, and one page of reference for each package.

The pages lie where they are read on the repository (README.md, docs/, packages/*/), so that their links are right
there; the site has the same folders, so the same links are right here. Links to what is no page (a source, a folder)
lead nowhere on the site, and the strict build fails on them.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT / "tests" / "workspace" / "test_public_api.py"
PAGES = (
    "README.md", "README.zh-CN.md", "CONTRIBUTING.md", "LICENSE", "docs/*.md", "docs/*.svg", "docs/*.png",
    "bench/README.md", "packages/*/README.md", "packages/*/CHANGELOG.md", "packages/*/docs/*.md",
    "packages/*/src/*/spec/*.md",
)  # fmt: skip
_GROUPS = {
    "Changelogs": "packages/*/CHANGELOG.md",
    "Formats": "packages/*/src/*/spec/*.md",
    "More": "packages/*/docs/*.md",
}


def on_config(config: Any) -> Any:
    """Add to the navigation what is made from a folder: nobody must list it."""
    config.nav.append({"Reference": [{name: f"reference/{name}.md"} for name in _packages()]})
    for title, pattern in _GROUPS.items():
        listed = str(config.nav)  # those that have a place of their own
        config.nav.append({title: [{_label(path): path} for path in _paths(pattern) if path not in listed]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and the reference."""
    for pattern in PAGES:
        for path in _paths(pattern):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for package in _packages():
        files.append(File.generated(config, f"reference/{package}.md", content=_reference(package)))
    return files


def on_post_build(config: Any) -> None:
    """Fail where a public name has no place in the reference."""
    for door, names in public_names().items():
        page = Path(config.site_dir, "reference", door.split(".")[0] + ".html").read_text(encoding="utf-8")
        missing = [name for name in names if f'id="{_place(door, name)}"' not in page]
        if missing:
            raise PluginError(f"{door}: the reference lacks {', '.join(missing)}")


def public_names() -> dict[str, list[str]]:
    """Return each door with its public names: the tables that tests/workspace/test_public_api.py holds."""
    names: dict[str, list[str]] = {}
    for node in ast.parse(PUBLIC.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in (
            "PACKAGE_NAMES",
            "MODULE_NAMES",
        ):
            names |= ast.literal_eval(node.value)  # type: ignore[arg-type]
    return {
        door: sorted(n for n in names[door] if n != "__version__" and f"{door}.{n}" not in names)
        for door in sorted(names)
    }


def _place(door: str, name: str) -> str:
    """Return the path of a public name; that of ``diff`` in ``from .diff import diff`` goes through the module."""
    folder = next(ROOT.glob(f"packages/*/src/{door.replace('.', '/')}"), None)
    if folder is not None and folder.is_dir():
        for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            if name in names and getattr(node, "module", None) in (name, f"{door}.{name}"):
                return f"{door}.{name}.{name}"
    return f"{door}.{name}"


def _has_module(door: str, name: str) -> bool:
    """Tell whether a module of the door has the name: mkdocstrings shows that only where it is asked for alone."""
    folder = f"packages/*/src/{door.replace('.', '/')}"
    return any(True for end in ("", ".py") for _ in ROOT.glob(f"{folder}/{name}{end}"))


def _reference(package: str) -> str:
    lines = [f"# {package}\n"]
    for door, names in public_names().items():
        if door.split(".")[0] == package:
            plain = [name for name in names if not _has_module(door, name)]
            members = f"[{', '.join(plain)}]" if plain else "false"
            options = f"    options:\n      heading_level: 3\n      members: {members}\n"
            lines += [f"## from {door} import ...\n", f"::: {door}\n{options}"]
            for name in sorted(set(names) - set(plain)):
                options = "    options:\n      heading_level: 3\n      show_root_heading: true\n"
                lines += [f"::: {_place(door, name)}\n{options}      show_root_toc_entry: true\n"]
    return "\n".join(lines)


def _packages() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("packages/*/src/*/__init__.py"))


def _paths(pattern: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(pattern))]


def _label(path: str) -> str:
    """``probe-format``, or ``probe-format: dump`` where a package has several."""
    package, stem = path.split("/")[1], Path(path).stem
    return package if stem == "CHANGELOG" else f"{package}: {stem}"
