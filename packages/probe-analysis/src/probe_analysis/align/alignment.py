"""Find which call of one run is which call of another, module by module, and list the calls that only one has.

Calls are matched by their name, their module's path, their order, their class, or their position alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from attrs import define, field, frozen
from probe_format.names import with_direction

from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import GRADIENTS, Call

from .mapping import Mapping
from .sequence import aligned
from .tree import Node, forest, plain_path, without_outer

How = Literal["name", "path", "order", "class", "position"]
Siblings = tuple[list[Node], list[Node]]
Rule = Callable[[Node, bool], Hashable]


@define(eq=False)  # not frozen, as there is one of each record
class Pair:
    """Hold two calls that are the same call of the model.

    how: what the calls were matched by: their record's name, their module's path, their order within the module
        around them, their class, or their position alone.
    """

    a: Call
    b: Call
    how: How


@frozen(eq=False)
class Alignment:
    """Hold which calls of two runs belong together.

    pairs: in the order in which the first run completed them.
    only_a, only_b: the calls without a partner, wrappers not among them.
    wrappers: the calls of wrappers (DDP, torch.compile, ...) that only one run has.
    """

    pairs: tuple[Pair, ...] = field(repr=False)
    only_a: tuple[Call, ...] = field(repr=False)
    only_b: tuple[Call, ...] = field(repr=False)
    wrappers: tuple[Call, ...] = field(default=(), repr=False)

    @property
    def how(self) -> str:
        """Return in words how many pairs were matched by what: ``12 by name, 3 by order``."""
        counts = Counter(pair.how for pair in self.pairs)
        return ", ".join(f"{count} by {how}" for how, count in counts.items()) or "none"

    def beyond(self, a: CompactRun, b: CompactRun) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of the calls without a partner that come after the end of the other run, where it was cut.

        a, b: the runs: first those of ``a`` that ``b`` did not get to, then the other way round.
        """
        end_a = _end(b, ((pair.b, pair.a) for pair in self.pairs))
        end_b = _end(a, ((pair.a, pair.b) for pair in self.pairs))
        only = (self.only_a, end_a), (self.only_b, end_b)
        one, two = (frozenset(call.name for call in calls if call.order > end) for calls, end in only)
        return one, two

    def lone(self, a: CompactRun, b: CompactRun) -> tuple[Sequence[Call], Sequence[Call]]:
        """Return the calls that either run alone has, without those that come after the end of the other."""
        both = zip((self.only_a, self.only_b), self.beyond(a, b), strict=True)
        one, two = ([call for call in calls if call.name not in names] for calls, names in both)
        return one, two

    def renamed(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the layers and the functions whose names differ: name in the first run -> in the second."""
        layers: dict[str, str] = {}
        apis: dict[str, str] = {}
        for pair in self.pairs:
            if pair.a.kind == "module" and plain_path(pair.a.path) != plain_path(pair.b.path):
                layers.setdefault(plain_path(pair.a.path), plain_path(pair.b.path))
            elif pair.a.kind == "api" and pair.a.what != pair.b.what:
                apis.setdefault(pair.a.what, pair.b.what)
        return layers, apis


def _end(run: CompactRun, pairs: Iterable[tuple[Call, Call]]) -> float:
    """Return the place in the other run of the last call that a run has completed; infinite unless it was cut.

    pairs: its calls, and which they are in the other run.
    """
    if not run.was_cut:
        return math.inf
    return max((other.order for own, other in pairs if not run.ended_inside(own)), default=-1)


def align(a: CompactRun, b: CompactRun, mapping: Mapping | None = None) -> Alignment:
    """Return which call of ``a`` is which call of ``b``. mapping: names of ``a`` as ``b`` has them."""
    if mapping is None and (a.calls is b.calls or list(a.by_name) == list(b.by_name)):
        return Alignment(tuple(Pair(x, y, "name") for x, y in zip(a.calls, b.calls, strict=True)), (), ())
    state = _Alignment(a, b, mapping or Mapping())
    (tops, around), (others, beside) = forest(a), forest(b)
    ones, outer = without_outer(tops, others)
    twos, other = without_outer(others, tops)
    state.match(ones, twos)
    state.match_wrappers(around + outer, beside + other)
    state.match_rest()
    return state.found(around + beside + outer + other)


def _wraps(call: Call, wrappers: set[str], paths: set[str]) -> bool:
    """Return whether a record is of a wrapper, or of the model's own parameters, which no plain run records."""
    if call.kind in GRADIENTS:
        return not plain_path(call.path) or call.path in paths
    return with_direction(call.name, "forward") in wrappers


@define(eq=False)
class _Alignment:
    """Collect the pairs of two runs. pairs: name in ``a`` -> pair."""

    a: CompactRun
    b: CompactRun
    mapping: Mapping
    pairs: dict[str, Pair] = field(factory=dict)

    def found(self, wrappers: Sequence[Call]) -> Alignment:
        """Return the alignment. wrappers: calls of wrappers; those without a pair are not counted as missing."""
        pairs = tuple(sorted(self.pairs.values(), key=lambda pair: pair.a.order))
        taken = {id(pair.b) for pair in pairs}
        alone = [call for call in wrappers if call.name not in self.pairs and id(call) not in taken]
        left_out, paths = {call.name for call in alone}, {call.path for call in alone}
        return Alignment(
            pairs,
            tuple(c for c in self.a.calls if c.name not in self.pairs and not _wraps(c, left_out, paths)),
            tuple(c for c in self.b.calls if id(c) not in taken and not _wraps(c, left_out, paths)),
            tuple(alone),
        )

    def match(self, ones: Sequence[Node], twos: Sequence[Node]) -> None:
        """Match the nodes of two lists, and what is inside of the nodes that match."""
        todo = [(list(ones), list(twos))]
        while todo:
            one, two = todo.pop()
            for x, y, how in self._siblings(one, two):
                self._take(x.call, y.call, how)
                if x.inside or y.inside:
                    todo.append((x.inside, y.inside))

    def _siblings(self, one: list[Node], two: list[Node]) -> list[tuple[Node, Node, How]]:
        """Return the pairs among the calls made in one module: by the strictest rule first, then by looser rules."""
        found: list[tuple[Node, Node, How]] = []
        gaps = [(one, two)]
        rules: tuple[tuple[How, Rule], ...]
        rules = ("path", self._exact), ("order", self._same_kind), ("class", self._class)
        for how, key in rules:
            left: list[Siblings] = []
            for xs, ys in gaps:
                pairs = sorted(aligned([key(x, True) for x in xs], [key(y, False) for y in ys]))
                by: How = "order" if how == "path" else how  # of functions, which have no path
                found += [(xs[i], ys[j], how if xs[i].is_module else by) for i, j in pairs]
                left += _between(xs, ys, pairs)
            gaps = left
        for xs, ys in gaps:
            modules = [n for n in xs if n.is_module], [n for n in ys if n.is_module]
            if len(modules[0]) == len(modules[1]):
                found += [(x, y, "position") for x, y in zip(*modules, strict=True)]
        return found

    def _exact(self, node: Node, first: bool) -> Hashable:
        """Tell modules apart by their path, functions by name and shapes; a DTensor's shape is the global one."""
        if node.is_module:
            return "module", self.mapping.layer(node.path) if first else node.path
        run = self.a if first else self.b
        parts = () if node.call.order in run.damaged else run.read(node.call).side("in", "out")
        shapes = tuple(tuple(v.tensor.get("global_shape") or v.tensor["shape"]) for v in parts)
        return "api", self._function(node.call, first), shapes

    def _same_kind(self, node: Node, first: bool) -> Hashable:
        """Tell functions apart by their name alone; modules by the last part of their path."""
        if node.is_module:
            path = self.mapping.layer(node.path) if first else node.path
            return "module", path.rpartition(".")[2]
        return "api", self._function(node.call, first)

    def _class(self, node: Node, first: bool) -> Hashable:
        """Tell modules apart by their class; by this rule no functions match."""
        return ("module", node.call.what.lower()) if node.is_module else ("api", id(node))

    def _function(self, call: Call, first: bool) -> str:
        name = self.mapping.api(call.what) if first else call.what
        return _ALIASES.get(name.lower(), name.lower())

    def _take(self, x: Call, y: Call, how: How) -> None:
        if x.name == y.name:
            how = "name"
        self.pairs[x.name] = Pair(x, y, how)
        back, its = with_direction(x.name, "backward"), with_direction(y.name, "backward")
        if back in self.a.by_name and its in self.b.by_name:
            self.pairs[back] = Pair(self.a.by_name[back], self.b.by_name[its], how)

    def match_wrappers(self, ones: Sequence[Call], twos: Sequence[Call]) -> None:
        seconds = {call.name: call for call in twos}
        for call in ones:
            if call.name in seconds:
                self._take(call, seconds[call.name], "name")

    def match_rest(self) -> None:
        """Match parameters' gradients by their module's path, and what was saved by its name."""
        seconds: dict[Hashable, list[Call]] = {}
        taken = {id(pair.b) for pair in self.pairs.values()}
        for call in self.b.calls:
            if id(call) not in taken:
                seconds.setdefault(_rest_key(call, plain_path(call.path)), []).append(call)
        layers, _ = Alignment(tuple(self.pairs.values()), (), ()).renamed()
        for call in self.a.calls:
            if call.name in self.pairs:
                continue
            path = plain_path(call.path)
            path = layers.get(path, self.mapping.layer(path))
            same = seconds.get(_rest_key(call, path))
            if same and (call.kind in (*GRADIENTS, "debug") or _is_near(path, same[0])):
                other = same.pop(0)
                self.pairs[call.name] = Pair(call, other, "name" if other.name == call.name else "path")


def _is_near(path: str, other: Call) -> bool:
    """Return whether a backward call may be of the module with this path; it may where either path is unknown."""
    return other.backward and path in ("", plain_path(other.path) or path)


def _rest_key(call: Call, path: str) -> Hashable:
    if call.kind in GRADIENTS:
        return call.kind, path, call.count
    return call.kind, call.name


def _between(xs: list[Node], ys: list[Node], pairs: list[tuple[int, int]]) -> list[Siblings]:
    found = []
    i = j = 0
    for x, y in [*pairs, (len(xs), len(ys))]:
        if i < x and j < y:
            found.append((xs[i:x], ys[j:y]))
        i, j = x + 1, y + 1
    return found


#: Functions that frameworks call by other names.
_ALIASES = {"dense": "linear", "__add__": "add", "__mul__": "mul", "__sub__": "sub", "__matmul__": "matmul"}
_ALIASES |= {"__truediv__": "div", "__iadd__": "add_", "batch_matmul": "matmul", "bmm": "matmul"}
