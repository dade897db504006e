"""The arguments and results of calls: JSON, forms, tensors, and what runs within the leaf's aside."""

from __future__ import annotations

import collections
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hostile import HOSTILE
from probe_format import jsonio
from probe_format.values import MAX_LEAVES, UNKNOWN
from probe_runtime.collect import Part, Walk
from probe_runtime.describe import Placement


class Tensor:
    def __repr__(self) -> str:
        return "t"


class Own(Tensor):
    """A class of the user's, which the leaf knows as a tensor."""


class Constant:
    """A class whose equal values are the same, and may have no hash."""

    def __init__(self, number: int | list[int]) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number if type(self.number) is int else (self.number, []))


class Leaf:
    """Stands for a framework's."""

    tensor_types = frozenset((Tensor,))
    constant_types = frozenset((Constant,))

    def __init__(self) -> None:
        self.inside = False
        self.entered = 0
        self.asked: list[Any] = []
        self.error: Exception | None = None

    def aside(self) -> Leaf:
        return self

    def __enter__(self) -> None:
        assert not self.inside
        self.inside = True
        self.entered += 1

    def __exit__(self, *error: object) -> None:
        assert self.inside
        self.inside = False

    def tensor(self, placement: Placement, t: Any, path: Any) -> bytes:
        assert self.inside
        if self.error is not None:
            raise self.error
        return b'{"type":"Tensor","dtype":"f4"\x1an1\x1a}'

    def leaf(self, placement: Placement, value: Any, path: Any) -> Any:
        assert not self.inside
        self.asked.append(value)
        if isinstance(value, Own):
            placement.found.append((path, value))
            with self:
                return self.tensor(placement, value, path)
        if isinstance(value, Constant):
            return b'{"type":"Constant","value":%d}' % value.number
        return UNKNOWN


Point = collections.namedtuple("Point", "x y")
T, OWN = Tensor(), Own()
TENSOR = {"type": "Tensor", "dtype": "f4"}
ONE = {"type": "int", "value": 1}


class Bench:
    def __init__(self) -> None:
        self.leaf = Leaf()
        self.notes: list[str] = []
        self.walk = Walk(self.leaf, self.notes.append)
        self.found: list[Any] = []

    def part(self, show: bool = True) -> Part:
        made = Part(self.walk, "r", "input", False, show, "input_args")
        self.found = made.found
        return made

    def arguments(self, *args: Any) -> tuple[Any, Any]:
        text, form = self.part().arguments(args)
        return self.json(text), form

    def keywords(self, **kwargs: Any) -> tuple[Any, Any]:
        text, form = self.part().keywords(kwargs)
        return self.json(text), form

    def results(self, out: Any) -> tuple[Any, Any, bool]:
        text, form, fields = self.part().results(out)
        return self.json(text), form, fields

    def json(self, text: bytes) -> Any:
        assert type(text) is bytes and b"\n" not in text and not self.leaf.inside
        return jsonio.loads(text.replace(b"\x1an1\x1a", b""))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("args", "json", "form"),
    [
        ((), [], 0),
        ((T, 1, None), [TENSOR, ONE, None], 3),
        (([T, T], 1), [[TENSOR, TENSOR], ONE], [[None, None], None]),
        (([], {}, T), [[], {}, TENSOR], 3),
        (({"a": [T]},), [{"a": [TENSOR]}], [{"a": [None]}]),
        ((Point(T, ()),), [{"x": TENSOR, "y": []}], [{"x": None, "y": None}]),
        ((Constant(3), Constant(3)), [{"type": "Constant", "value": 3}] * 2, 2),
    ],
)
def test_arguments_and_their_form(bench: Bench, args: Any, json: Any, form: Any) -> None:
    for _ in range(2):  # unknown, then known
        assert bench.arguments(*args) == (json, form)
        assert bench.part(show=False).arguments(args)[1] == form


def test_keywords_and_their_form(bench: Bench) -> None:
    given = {'k"': T, "n": 1, "é": [T]}
    assert bench.keywords(**given) == ({'k"': TENSOR, "n": ONE, "é": [TENSOR]}, [None, None, [None]])
    assert bench.found == [(('k"',), T), (("é", 0), T)]
    assert bench.keywords(a=T) == ({"a": TENSOR}, 1)
    assert bench.keywords() == ({}, 0)


@pytest.mark.parametrize(
    ("out", "json", "form", "fields", "path"),
    [
        (T, [TENSOR], 1, False, (0,)),
        (OWN, [TENSOR], 1, False, (0,)),
        ((1, T), [ONE, TENSOR], 2, False, (1,)),
        ([[T]], [[TENSOR]], [[None]], False, (0, 0)),
        ({"a": T}, {"a": TENSOR}, [{"a": None}], True, ("a",)),
        (Point(1, T), {"x": ONE, "y": TENSOR}, [{"x": None, "y": None}], True, ("y",)),
        ((), [], 0, False, None),
        ({}, {}, 1, True, None),
        (1, [ONE], 1, False, None),
        (None, [None], 1, False, None),
        ("text", [{"type": "str", "value": "text"}], 1, False, None),
    ],
)
def test_results(bench: Bench, out: Any, json: Any, form: Any, fields: bool, path: Any) -> None:
    for _ in range(2):
        assert bench.results(out) == (json, form, fields)
        assert [place for place, _ in bench.found] == ([] if path is None else [path])
        part = bench.part(show=False)
        assert part.results(out)[1:] == (form, fields)
        assert [place for place, _ in part.found] == ([] if path is None else [path])


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_what_raises_costs_itself_alone(bench: Bench, what: str) -> None:
    value = HOSTILE[what]
    for _ in range(2):
        json, form = bench.arguments(1, value, T)
        assert (json[0], json[2]) == (ONE, TENSOR) and (form == 3 or len(form) == 3)
        json, form, fields = bench.results(value)
        assert isinstance(json, dict if fields else list)
        assert len(json) == (form if type(form) is int else len(form[0] if fields else form))
        assert bench.results((value, T))[0][1] == TENSOR
        assert bench.keywords(k=value, t=T)[0]["t"] == TENSOR
        bench.part(show=False).arguments([value])
    assert not bench.leaf.inside


def test_a_tensor_that_raises_costs_itself_and_a_full_disk_is_raised(bench: Bench) -> None:
    bench.leaf.error = ValueError("bad tensor")
    for tensor in (T, OWN):
        json, _ = bench.arguments(1, [tensor])
        assert json[0] == ONE and "ValueError: bad tensor" in json[1][0]["unsupported"]
    bench.leaf.error = OSError(28, "full")
    for tensor in (T, OWN):
        with pytest.raises(OSError, match="full"):
            bench.arguments([tensor])
        assert not bench.leaf.inside


def test_the_leaf_goes_aside_once_for_plain_values(bench: Bench) -> None:
    bench.arguments(T, [T, 1], {"a": (T,)}, 1.5, "x", None, slice(1, 2), Ellipsis)
    assert bench.leaf.entered == 1 and not bench.leaf.asked


def test_the_users_own_code_runs_outside(bench: Bench) -> None:
    leaf, ran = bench.leaf, collections.Counter[str]()

    def here(what: str) -> None:
        assert not leaf.inside, what
        ran[what] += 1

    class Pairs(collections.UserDict[str, Any]):
        def __iter__(self) -> Any:
            here("mapping")
            return super().__iter__()

    class Elements(list[Any]):
        def __iter__(self) -> Any:
            here("list")
            return super().__iter__()

    class Fields(collections.namedtuple("Fields", "t")):
        def __iter__(self) -> Any:
            here("named tuple")
            return super().__iter__()

    @dataclasses.dataclass
    class Data:
        t: Any

        def __getattribute__(self, name: str) -> Any:
            if name == "t":
                here("dataclass")
            return super().__getattribute__(name)

    class Text(complex):
        def __str__(self) -> str:
            here("text")
            return "?"

    class Key:
        def __str__(self) -> str:
            here("key")
            return "key"

    class Bound:
        def __index__(self) -> int:
            here("bound")
            return 5

    values = [Pairs(t=T), Elements([T]), Fields(T), Data(T), Text(), {Key(): T}, slice(Bound()), T]
    for _ in range(2):
        json, form = bench.arguments(*values)
        assert json[:4] == [{"t": TENSOR}, [TENSOR], {"t": TENSOR}, {"t": TENSOR}]
        assert json[5:] == [{"key": TENSOR}, {"type": "slice", "value": [None, 5, None]}, TENSOR]
        assert form == [{"t": None}, [None], {"t": None}, {"t": None}, None, {"key": None}, None, None]
        assert [path for path, _ in bench.found] == [
            (0, "t"), (1, 0), (2, "t"), (3, "t"), (5, "key"), (7,)
        ]  # fmt: skip
    assert set(ran) == {"mapping", "list", "named tuple", "dataclass", "text", "key", "bound"}


def test_what_is_hidden_gives_its_tensors_and_no_word(bench: Bench) -> None:
    bench.leaf.error = ValueError("not to be described")
    part = bench.part(show=False)
    _, form = part.arguments((T, object(), {"a": T}, 10**5000))
    assert part.found == [((0,), T), ((2, "a"), T)] and form == [None, None, {"a": None}, None]
    assert not bench.notes


def test_the_limit_is_for_each_argument_and_for_a_whole_result(bench: Bench) -> None:
    most = [0] * MAX_LEAVES
    assert bench.arguments(most, most)[1] and not bench.notes
    assert bench.keywords(a=most, b=most)[1] and not bench.notes
    json, form, _ = bench.results((*most, 0))
    assert json[-1]["unsupported"].startswith("1 more elements") and form == MAX_LEAVES + 1
    assert len(bench.notes) == 1


def test_constants_are_asked_for_once_or_always_without_a_hash(bench: Bench) -> None:
    bench.arguments(*[Constant(1234)] * 3)
    assert len(bench.leaf.asked) == 1
    bench.arguments(Constant([1]))  # no whole number: the leaf fails, and says so
    assert len(bench.notes) == 1


def test_a_saved_value_keeps_the_form_of_what_is_empty(bench: Bench) -> None:
    place = Placement("r", "", False, label=None)
    text, form = bench.walk.value(place, {"a": T, "b": [1, (2, {"type": 3})], "c": {}, "d": []})
    assert form == {"a": None, "b": [None, [None, {"type": None}]], "c": {}, "d": []}
    assert bench.json(text)["b"][1][1] == {"type": {"type": "int", "value": 3}}
    assert place.found == [(("a",), T)]
    assert bench.walk.value(Placement("r", "", False, label=None), T)[1] is None


def test_threads_walk_at_the_same_time() -> None:
    class Quiet(Leaf):
        __enter__ = __exit__ = lambda self, *error: None  # type: ignore[assignment]

        def tensor(self, *about: Any) -> bytes:
            return b'{"type":"Tensor","dtype":"f4"}'

    walk, wrong = Walk(Quiet(), lambda why: None), list[Any]()

    def work(number: int) -> None:
        for n in range(300):
            made = type(f"Own{number}{n % 7}", (list,), {})([T, {"n": n}])
            text, form = Part(walk, "r", "input", False, True, "input_args").arguments((made, n))
            said = [TENSOR, {"n": {"type": "int", "value": n}}]
            if jsonio.loads(text)[0] != said or form != [[None, {"n": None}], None]:
                wrong.append(text)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong
