"""No function has more than 20 ways through it, boolean operators counted; ruff holds the bound without them (C901)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from members import EVERY, tree

MOST = 20
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function, but not what is in those inside it, which are counted for themselves."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, FUNCTIONS):
            yield each
            yield from own(each)


def ways(function: ast.AST) -> int:
    """Count as radon does: one, and one more for each branch, operand, condition and handler."""
    found = 1
    for node in own(function):
        if isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
        elif isinstance(node, ast.For | ast.While):
            found += 1 + bool(node.orelse)
        elif isinstance(node, ast.Try):
            found += len(node.handlers) + bool(node.orelse)
        elif isinstance(node, ast.If | ast.IfExp | ast.Assert | ast.Lambda | ast.match_case):
            found += 1
    return found


def test_no_function_has_too_many_ways() -> None:
    functions = {
        f"{module}:{node.lineno} {node.name}": ways(node)
        for module, path in EVERY.items()
        for node in ast.walk(tree(path))
        if isinstance(node, FUNCTIONS)
    }
    assert max(functions.values()) > MOST / 2  # it counts
    assert not {name for name, n in functions.items() if n > MOST}
