"""The import graph of the packages, read from the sources without running them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from members import modules, tree


@dataclass(frozen=True)
class Import:
    """One import: ``of`` is the dotted module that the line names, seen from module ``by``."""

    by: str
    of: str
    line: int
    where: str  # "module" (runs on import), "guarded" (in try/except ImportError), "function" or "typing"
    name: str | None = (
        None  # what is taken from ``of``; None for ``import of`` and where ``of`` is the name itself
    )

    @property
    def top(self) -> str:
        return self.of.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.by}, line {self.line}: imports {self.of} ({self.where} level)"


def _catches_import_error(node: ast.Try) -> bool:
    names = [n.id for h in node.handlers if h.type for n in ast.walk(h.type) if isinstance(n, ast.Name)]
    return "ImportError" in names or "ModuleNotFoundError" in names


def _walk(node: ast.AST, where: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, where
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, "function" if where != "typing" else where)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for part in child.body:
                yield from _walk(ast.Module([part], []), "typing")
            for part in child.orelse:
                yield from _walk(ast.Module([part], []), where)
        elif isinstance(child, ast.Try) and where == "module" and _catches_import_error(child):
            yield from _walk(child, "guarded")
        else:
            yield from _walk(child, where)


def imports_of(name: str, path: Path, known: frozenset[str]) -> list[Import]:
    """Every import in one file; relative ones made absolute, ``from . import x`` resolved to module x."""
    found = []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, where in _walk(tree(path), "module"):
        if isinstance(node, ast.Import):
            found += [Import(name, alias.name, node.lineno, where) for alias in node.names]
            continue
        base = node.module or ""
        if node.level:
            parent = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parent, base] if base else parent)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            is_module = inner in known
            found.append(
                Import(
                    name, inner if is_module else base, node.lineno, where, None if is_module else alias.name
                )
            )
    return found


@functools.cache  # the sources do not change while tests run
def graph(package: str) -> list[Import]:
    """Every import in a package."""
    files = modules(package)
    known = frozenset(files)
    return [i for name, path in files.items() for i in imports_of(name, path, known)]


def reach(package: str, start: str, levels: frozenset[str]) -> dict[str, list[Import]]:
    """Modules of the package that ``start`` imports, directly or not -> the imports that lead there."""
    edges: dict[str, list[Import]] = {}
    for i in graph(package):
        if i.where in levels and i.top == package and i.of != package:
            edges.setdefault(i.by, []).append(i)
    chains: dict[str, list[Import]] = {}
    todo: list[tuple[str, list[Import]]] = [(start, [])]
    while todo:
        module, chain = todo.pop()
        for i in edges.get(module, ()):
            if i.of not in chains:
                chains[i.of] = [*chain, i]
                todo.append((i.of, chains[i.of]))
    return chains
