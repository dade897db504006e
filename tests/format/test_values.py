"""Nested arguments as JSON: nothing raises, nothing is dropped without a note."""

import collections
import dataclasses
import decimal
import enum
import gc
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.values import MAX_DEPTH, MAX_LEAVES, TABLE, UNKNOWN, ValueWalk, is_leaf, unsupported
from strict_json import strict


class Leaf:
    """What a framework's leaf function gets."""


class Seeing(ValueWalk):
    """A walk with a leaf of its own, that keeps what it was asked."""

    def __init__(self, leaf=None):
        self.notes, self.seen, self.own = [], [], leaf
        super().__init__(dict(TABLE), self.notes.append)

    def leaf(self, value, path):
        if self.own is not None:
            return self.own(value, path)
        if isinstance(value, Leaf):
            self.seen.append((path, value))
            return jsonio.dumps({"type": "Leaf", "value": list(path)})
        return UNKNOWN

    def json(self, value, path=()):
        text, form = self.describe(value, path)
        assert type(text) is bytes and b"\n" not in text and self.above == []
        out = jsonio.loads(text)
        strict(text)
        assert form == form_of(out)
        return out


def form_of(out):
    """The form of gradients, as the JSON has it: nested nulls, and null for what is empty."""
    if isinstance(out, list):
        return [form_of(item) for item in out] or None
    if isinstance(out, dict) and not is_leaf(out):
        return {key: form_of(item) for key, item in out.items()} or None
    return None


def describe(value):
    walk = Seeing()
    return walk.json(value), walk.notes


def value_of(item):
    assert set(item) == {"type", "value"}, item
    return item["type"], item["value"]


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Data:
    a: int
    b: object = None
    unset: object = dataclasses.field(init=False)


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    HIGH = 7


class Word(str):
    pass


class Real(float):
    pass


@pytest.mark.parametrize(
    ("value", "name", "content"),
    [
        (5, "int", 5),
        (2**70, "int", 2**70),
        (True, "bool", True),
        (1.5, "float", 1.5),
        (float("nan"), "float", "NaN"),
        (float("-inf"), "float", " -inf"),
        ("x", "str", "x"),
        (Word("x"), "Word", "x"),
        (Real("inf"), "Real", "inf"),
        (Level.HIGH, "Level", 7),
        (Colour.RED, "Colour", "RED"),
        (1 + 2j, "complex", "(1+2j)"),
        (decimal.Decimal("1.50"), "Decimal", "1.50"),
        (range(3), "range", "range(0, 3)"),
        (..., "ellipsis", "..."),
        (slice(1, None, 2), "slice", [1, None, 2]),
        (slice(np.int64(4), float("inf"), "s"), "slice", [4, "inf", "str"]),
        (frozenset({2, 1}), "frozenset", "{1, 2}"),
        ({"b", "-a"}, "set", "{'-a', 'b'}"),
        (np.float32(1.5), "float32", 1.5),
        (np.float64("nan"), "float64", "NaN"),
        (np.bool_(True), "bool", True),
        (np.uint64(2**64 - 1), "uint64", 2**64 - 1),
        (np.str_("q"), "str_", "q"),
        (dict, "type", "dict"),
        (len, "function", "builtins.len"),
    ],
)
def test_values_of_python_and_numpy(value, name, content):
    out, notes = describe(value)
    assert value_of(out) == (name, content)
    assert not notes


def test_bytes_are_told_with_their_length():
    assert describe(b"ab")[0] == {"type": "bytes", "value": "6162", "length": 2}
    assert describe(bytearray(5000))[0]["length"] == 5000


def test_structure_is_mirrored_and_paths_lead_to_the_leaves():
    walk = Seeing()
    a, b, c, d, e = (Leaf() for _ in range(5))
    value = [a, (1, {"k": b, 3: c}), None, Point(d, 2), types.MappingProxyType({"m": e})]
    out = walk.json(value, (7,))
    assert walk.seen == [
        ((7, 0), a),
        ((7, 1, 1, "k"), b),
        ((7, 1, 1, "3"), c),
        ((7, 3, "x"), d),
        ((7, 4, "m"), e),
    ]
    assert out[0] == {"type": "Leaf", "value": [7, 0]}
    assert out[1][0] == {"type": "int", "value": 1}
    assert out[2] is None
    assert out[3]["y"] == {"type": "int", "value": 2}
    assert not walk.notes
    assert describe([[], (), {}])[0] == [[], [], {}]


def test_fields_of_dataclasses_and_keys_that_would_collide():
    out, _ = describe(Data(1, [2]))
    assert list(out) == ["a", "b", "unset"]
    assert out["unset"] is None
    out, _ = describe({1: 1, "1": 2, "1'": 3, (1, 2): 4})
    assert [item["value"] for item in out.values()] == [1, 2, 3, 4]
    assert list(out) == ["1", "1'", "1''", "(1, 2)"]


def test_what_has_no_encoding_is_named_and_noted():
    out, notes = describe([object(), (i for i in ())])
    assert out[0] == jsonio.loads(unsupported(object(), "no encoding for this type"))
    assert out[0]["value"] is None
    assert out[1]["type"] == "generator"
    assert notes == ["object: no encoding for this type", "generator: no encoding for this type"]


class RaisesEverywhere:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class BadDict(dict):
    def items(self):
        raise RuntimeError("no items")


class BadPairs(dict):
    def items(self):
        return [1, 2]


class BadList(list):
    def __iter__(self):
        raise RuntimeError("no elements")


class BadKey:
    def __str__(self):
        raise RuntimeError("no text")


class BadText(complex):
    def __str__(self):
        raise RuntimeError("no text")


class BadFields(collections.namedtuple("BadFields", "a")):
    def __iter__(self):
        raise RuntimeError("no fields")


HOSTILE = {
    "everything": RaisesEverywhere(),
    "items": BadDict(a=1),
    "pairs": BadPairs(a=1),
    "elements": BadList([1]),
    "text": BadText(),
    "fields": BadFields(1),
    "set": {RaisesEverywhere()},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_values_that_raise_cost_themselves_and_nothing_else(kind):
    out, notes = describe([1, HOSTILE[kind], 2])
    assert out[0] == {"type": "int", "value": 1}
    assert out[2] == {"type": "int", "value": 2}
    assert out[1]["value"] is None
    assert "looking at it raised" in out[1]["unsupported"]
    assert len(notes) == 1


def test_a_key_that_has_no_text_is_named_by_its_type():
    out, _ = describe({BadKey(): 1, "b": 2})
    assert [item["value"] for item in out.values()] == [1, 2]
    assert next(iter(out)).endswith("BadKey>")


def test_a_leaf_that_raises_costs_one_value_but_a_full_disk_is_no_property_of_it():
    def leaf(value, path):
        raise ValueError("bad value") if not isinstance(value, Leaf) else OSError(28, "full")

    walk = Seeing(leaf)
    out = walk.json([1, 2.5, 1j])
    assert out[0]["value"] == 1 and "ValueError: bad value" in out[2]["unsupported"]
    assert len(walk.notes) == 1
    with pytest.raises(OSError, match="full"):
        walk.describe(Leaf())


def test_a_value_inside_itself_is_cut_and_a_shared_one_is_not():
    loop = [1]
    loop.append({"again": loop})
    out, notes = describe(loop)
    assert "contains itself" in out[1]["again"]["unsupported"]
    assert len(notes) == 1
    shared = [1]
    assert describe([shared, shared])[0] == [[{"type": "int", "value": 1}]] * 2


def test_depth_has_a_limit():
    deep = 1
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    out, notes = describe(deep)
    levels = 0
    while isinstance(out, list):
        (out,) = out
        levels += 1
    assert levels == MAX_DEPTH
    assert f"deeper than {MAX_DEPTH}" in out["unsupported"]
    assert len(notes) == 1


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_size_has_a_limit_that_is_told(more):
    out, notes = describe([0] * (MAX_LEAVES + more))
    assert len(out) == MAX_LEAVES + (more > 0)
    assert len(notes) == (more > 0)
    if more:
        assert out[-1]["unsupported"].startswith(f"{more} more elements")
    out, notes = describe(dict.fromkeys(range(MAX_LEAVES + more)))
    assert len(out) == MAX_LEAVES + (more > 0)
    assert ("..." in out) == (more > 0)


def test_the_limit_is_per_argument():
    walk = Seeing()
    for _ in range(3):
        walk.describe([0] * MAX_LEAVES)
    assert not walk.notes


def test_long_texts_of_odd_leaves_are_cut_with_their_length():
    out, _ = describe(np.longdouble(1))
    assert out["type"] == "longdouble"
    out, _ = describe(decimal.Decimal("1" * 10_000))
    assert out["value"].endswith("... (10000 characters)")
    assert len(out["value"]) < 5000
    assert describe("x" * 10_000)[0]["value"] == "x" * 10_000  # a plain text is whole


KEYS = st.text(max_size=3) | st.integers(-3, 3) | st.tuples(st.integers(0, 2))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
VALUES = st.recursive(
    PLAIN | st.builds(Leaf) | st.builds(object),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4) | st.tuples(v, v),
    max_leaves=15,
)


def leaves(value, path=()):
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item, (*path, None))
    elif isinstance(value, Leaf):
        yield path, value


@given(VALUES)
def test_any_value_is_strict_json_of_its_own_shape(value):
    walk = Seeing()
    out, notes, seen = walk.json(value), walk.notes, walk.seen
    assert [leaf for _, leaf in seen] == [leaf for _, leaf in leaves(value)]
    assert [len(path) for path, _ in seen] == [len(path) for path, _ in leaves(value)]

    def count(v):
        if isinstance(v, (list, tuple)):
            return sum(map(count, v))
        if isinstance(v, dict):
            return sum(map(count, v.values()))
        return type(v) is object

    assert len(notes) == count(value)
    for path, _ in seen:  # the path leads to the leaf's JSON
        here = out
        for key in path:
            here = here[key]
        assert here == {"type": "Leaf", "value": list(path)}


# -- the table ----------------------------------------------------------------------------------------


def test_equal_values_of_other_types_are_told_apart_when_they_come_again():
    values = [
        1,
        True,
        1.0,
        0,
        False,
        0.0,
        -0.0,
        (1,),
        slice(1, None),
        slice(1.0, None),
        "1",
        Level.HIGH,
        7,
        Word("x"),
        "x",
    ]
    out, _ = describe(values * 2)
    assert out[: len(values)] == out[len(values) :]
    assert len({repr(one) for one in out}) == len(values)


def test_a_class_is_asked_for_its_kind_once_and_its_values_each_time():
    class Bag(collections.UserDict):
        pass

    walk = Seeing()
    asked = []
    walk.own = lambda value, path: asked.append(type(value)) or UNKNOWN
    bags = [Bag(a=n) for n in range(3)]
    assert [bag["a"]["value"] for bag in walk.json(bags)] == [0, 1, 2]
    assert asked == [Bag] and Bag in walk.table and Bag not in TABLE


def test_what_stands_for_other_values_is_asked_each_time():
    class Proxy:
        def __init__(self, target):
            self.target = target

        @property
        def __class__(self):
            return type(self.target)

        def __iter__(self):
            return iter(self.target)

        def items(self):
            return self.target.items()

    walk = Seeing()
    out = walk.json([Proxy({"a": 1}), Proxy([2]), Proxy({"b": 3})])
    assert [list(part) for part in out] == [["a"], [{"type": "int", "value": 2}], ["b"]]
    assert Proxy not in walk.table


def test_classes_without_end_fill_no_memory():
    walk = Seeing()
    for n in range(5000):
        walk.describe(type(f"Made{n}", (), {})())
    assert len(walk.table) < 4200


def test_text_and_numbers_without_end_fill_no_memory():
    walk = Seeing()
    size = []
    for start in range(0, 40_000, 10_000):
        gc.collect()
        size.append(sys.getallocatedblocks())
        for n in range(start, start + 10_000):
            walk.describe({f"key {n}": n, "t": f"text {n}"})
    assert size[-1] - size[1] < 10_000


def test_another_thread_may_change_what_is_walked():
    walk, items = Seeing(), list(range(100))
    walk.own = lambda value, path: items.clear() or UNKNOWN
    assert walk.json([*items[:2], object(), items])[3] == []


def test_numbers_of_a_class_made_from_one_are_what_they_are() -> None:
    class Count(int):
        def __int__(self) -> int:
            return 7

    class Rate(float):
        def __float__(self) -> float:
            return 99.0

    out, _ = describe([Count(5), Rate(1.5)])
    assert [each["value"] for each in out] == [5, 1.5]
