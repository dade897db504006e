"""Arrange the forward calls of a run as a tree, each inside of the module call around it, without wrappers.

Wrappers (DDP, FSDP, torch.compile, ...) are taken out of the tree, and out of the modules' names. A module of
the user's own that only one of two runs has around the model can be taken out too.
"""

from __future__ import annotations

from attrs import define, field

from probe_analysis.calls.run import Call, Run

#: Parts of a qualified name that a wrapper around the model, or around a part of it, puts in.
WRAPPER_PARTS = frozenset(("module", "_orig_mod", "_flat_param", "_forward_module"))
WRAPPER_PARTS |= {"_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def plain_path(path: str) -> str:
    """Return a module's qualified name without the parts that wrappers (DDP, FSDP, torch.compile, ...) put in."""
    if not path:
        return path
    return ".".join(part for part in path.split(".") if part not in WRAPPER_PARTS)


@define(eq=False)
class Node:
    """Hold one forward call with the calls made inside of it.

    path: its module's qualified name without the parts of wrappers; for an API call, empty.
    inside: the calls made in it, in the order in which they began, wrappers left out.
    """

    call: Call
    path: str
    inside: list[Node] = field(factory=list)

    @property
    def is_module(self) -> bool:
        return self.call.kind == "module"


def forest(run: Run) -> tuple[list[Node], list[Call]]:
    """Return the calls at the top of a run with all that is inside, and the calls of wrappers, which are left out.

    A wrapper is a module whose name, without the parts of wrappers, is that of a module directly inside of it; so is
    the model inside of DDP and the like, as the model itself is recorded in no other run.
    """
    calls = (call for call in run.calls if not call.backward and call.kind in ("module", "api"))
    nodes = {c.name: Node(c, plain_path(c.path) if c.kind == "module" else "") for c in calls}
    parents = run.rank.construct.parents
    # Names of construct.json come in the order in which calls began; calls without a node there by completion.
    began = [name for name in parents if name in nodes]
    began += [name for name in nodes if name not in parents]
    top: list[Node] = []
    for name in began:
        above = next((node for each in nodes[name].call.modules if (node := nodes.get(each))), None)
        (top if above is None else above.inside).append(nodes[name])
    wrappers: list[Call] = []
    return _unwrapped(top, wrappers), wrappers


def _unwrapped(nodes: list[Node], wrappers: list[Call]) -> list[Node]:
    """Return the nodes with each wrapper replaced by what is inside of it, at every depth."""
    found: list[Node] = []
    todo = list(reversed(nodes))
    while todo:
        node = todo.pop()
        same = (each for each in node.inside if each.is_module and each.path == node.path)
        if node.is_module and (not node.path or any(same)):
            wrappers.append(node.call)
            todo.extend(reversed(node.inside))
        else:
            found.append(node)
    for node in found:
        node.inside = _unwrapped(node.inside, wrappers)
    return found


def without_outer(nodes: list[Node], others: list[Node]) -> tuple[list[Node], list[Call]]:
    """Return the calls at the top of a run without a module of the user's own around the model, and its call, if any.

    It is the one module at the top, and has inside of it most of the modules that the other run has at the top.

    others: the calls at the top of the other run.
    """
    outer = [node for node in nodes if node.is_module]
    names = {_last(node) for node in others if node.is_module}
    if len(outer) != 1 or len(names) < 2:
        return nodes, []
    (node,) = outer
    inside = {_last(inner) for inner in node.inside if inner.is_module}
    if _last(node) in names or 2 * len(inside & names) <= len(names):
        return nodes, []
    at = nodes.index(node)
    return [*nodes[:at], *node.inside, *nodes[at + 1 :]], [node.call]


def _last(node: Node) -> str:
    return node.path.rpartition(".")[2]
