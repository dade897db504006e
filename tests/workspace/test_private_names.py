"""Tests use no private name of a package: a test of one keeps code alive that nothing else may call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from members import EVERY, tree

TESTS = Path(__file__).resolve().parents[1]
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
#: Names of others, which our sources define (or store to) as well -> whose they are.
OF_OTHERS = {
    "_C": "torch: its functions in C++",
    "_backward_hooks": "torch.Tensor: the user's hooks",
    "_exit": "os: end a process as a crash does",
    "_fields": "named tuples",
    "_parameters": "torch.nn.Module",
    "_post_accumulate_grad_hooks": "torch.Tensor: the user's hooks",
    "_replace": "named tuples",
    "_repr_html_": "IPython: how a notebook shows an object",
    "_str": "torch._tensor_str: what prints a tensor",
}


def private_names() -> set[str]:
    """Every private name that a package defines, imports or stores to."""
    found: set[str] = set()
    for path in EVERY.values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name)
    return {name for name in found if PRIVATE.fullmatch(name)}


def uses(source: ast.AST, names: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) of each use of one of the names: ``x._name``, ``setattr(x, "_name", ...)``, ``(x, "_name")``,
    ``"probe_x.y._name"``, ``from probe_x import _name``, also in code that a test runs in another process.
    """
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute):
            if node.attr in names and not (
                isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            ):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in names)
        elif isinstance(node, ast.Call | ast.Tuple):
            values = node.args if isinstance(node, ast.Call) else node.elts
            for value in values[1:]:
                if isinstance(value, ast.Constant) and value.value in names:
                    yield value.lineno, value.value
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            last = node.value.rpartition(".")[2]
            if re.fullmatch(r"probe_\w+(\.\w+)+", node.value) and last in names:
                yield node.lineno, last
            elif "\n" in node.value:
                try:
                    inner = ast.parse(node.value)
                except (SyntaxError, ValueError):  # not code, or characters that no source has
                    continue
                yield from ((node.lineno, name) for _, name in uses(inner, names))


def test_no_test_uses_a_private_name_of_a_package() -> None:
    names = private_names() - OF_OTHERS.keys()
    assert len(names) > 500
    found = [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in uses(tree(path), names)
    ]
    assert not found, "Test what is public, or give the code a public name:\n" + "\n".join(found)


def test_the_exceptions_are_needed() -> None:
    used = {name for path in TESTS.rglob("*.py") for _, name in uses(tree(path), set(OF_OTHERS))}
    assert used == private_names() & OF_OTHERS.keys() == OF_OTHERS.keys()


@pytest.mark.parametrize(
    "code",
    [
        "x._mine", "x.y._mine()", "setattr(x, '_mine', 1)", "getattr(x, '_mine')", "pair = (x, '_mine')",
        "patch('probe_format.module.Class._mine', 1)", "from probe_format import _mine",
        "run('''\\nimport probe_format\\nprobe_format._mine()\\n''')",
    ],
)  # fmt: skip
def test_each_way_to_a_private_name_is_found(code: str) -> None:
    assert [name for _, name in uses(ast.parse(code), {"_mine"})] == ["_mine"]


def test_what_is_ones_own_is_not() -> None:
    code = "class A:\n def f(self):\n  self._mine = '_mine'\n  return name.endswith('_mine')"
    assert not list(uses(ast.parse(code), {"_mine"}))
