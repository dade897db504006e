"""The journal's grammar: the table of keys, and the functions, assembly and specification that agree with it."""

import inspect
import json
import re
from importlib.resources import files

import pytest
from probe_format.journal import events
from probe_format.journal.assembly import Assembly

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}

# Every function with all of its arguments, and the event that it makes, its keys in their order.
CALLS = {
    "head": (("header",), {"k": "head", "header": {"task": "tensor"}}, [{"task": "tensor"}], {}),
    "frames": (("i", "f"), {"k": "frames", "i": 3, "f": ["a", "b"]}, [3, ("a", "b")], {}),
    "enter": (
        ("n", "u", "s", "a", "w", "p", "r", "x"),
        {"k": "enter", "n": "a", "u": "m", "s": 1, "a": [2], "w": {"b": 3}, "p": {}, "r": 2, "x": {"y": 4}},
        ["a", "m"],
        {"stack": 1, "arguments": [2], "keywords": {"b": 3}, "parameters": {}, "kept": 2, "extra": {"y": 4}},
    ),
    "exit": (
        ("n", "o", "e", "g"),
        {"k": "exit", "n": "a", "o": [], "e": "E: no", "g": [1, None]},
        ["a"],
        {"output": [], "raised": "E: no", "gradients": [1, None]},
    ),
    "redo": (("n", "a", "w"), {"k": "redo", "n": "a", "a": [], "w": {}}, ["a", [], {}], {}),
    "redone": (
        ("n", "o", "g"),
        {"k": "redone", "n": "a", "o": [5], "g": [1, 1]},
        ["a"],
        {"output": [5], "gradients": [1, 1]},
    ),
    "back": (
        ("n", "t", "u", "r", "i", "o", "partial"),
        {"k": "back", "n": "b", "t": 0, "u": None, "r": 2, "i": [[[0], 1]], "o": [], "partial": True},
        ["b", 0, None],
        {"inputs": [[[0], 1]], "outputs": [], "partial": True, "kept": 2},
    ),
    "pgrad": (("n", "q", "v"), {"k": "pgrad", "n": "p", "q": "weight", "v": 1}, ["p", "weight", 1], {}),
    "save": (("n", "v", "g"), {"k": "save", "n": "x", "v": 1, "g": ["y", None]}, ["x", 1, ("y", None)], {}),
    "grad": (("n", "p", "v"), {"k": "grad", "n": "y", "p": ["a", 0], "v": 1}, ["y", ("a", 0), 1], {}),
    "stat": (("r",), {"k": "stat", "r": [[1, {"Max": 2.0}]]}, [[[1, {"Max": 2.0}]]], {}),
    "file": (("r",), {"k": "file", "r": [1, 2]}, [[1, 2]], {}),
    "fault": (("w", "m"), {"k": "fault", "w": "here", "m": "E"}, ["here", "E"], {}),
    "tally": (("d",), {"k": "tally", "d": {"counts": {}}}, [{"counts": {}}], {}),
}


def read(event):
    """The event as an object: the frequent ones are made as bytes."""
    return json.loads(event) if isinstance(event, bytes) else event


def test_every_kind_has_its_function_and_every_function_its_kind():
    made = {name for name in events.__all__ if inspect.isfunction(getattr(events, name))}
    assert made == set(events.EVENTS) == set(CALLS)


@pytest.mark.parametrize("kind", CALLS)
def test_a_function_makes_the_keys_of_the_table_in_a_fixed_order(kind):
    keys, event, positional, named = CALLS[kind]
    made = read(getattr(events, kind)(*positional, **named))
    assert made == event
    assert tuple(made) == ("k", *keys)
    assert set(keys) == set(events.EVENTS[kind].keys)


@pytest.mark.parametrize(
    ("made", "keys"),
    [
        (events.enter("a", None), ("k", "n", "u")),
        (events.enter("a", None, kept=events.NODE), ("k", "n", "u", "r")),
        (events.exit("a"), ("k", "n")),
        (events.redone("a"), ("k", "n")),
        (events.back("b", 1, None), ("k", "n", "t", "u")),
        (events.save("x", 1), ("k", "n", "v")),
    ],
)
def test_what_is_not_given_has_no_key(made, keys):
    assert tuple(read(made)) == keys


def test_empty_is_not_absent():
    assert read(events.enter("a", None, arguments=[], keywords={}, stack=0)) == {
        "k": "enter",
        "n": "a",
        "u": None,
        "s": 0,
        "a": [],
        "w": {},
    }


class Asked(dict):
    """An event that remembers the keys it was asked for."""

    def __init__(self, event):
        super().__init__(event)
        self.keys_asked = set()

    def __getitem__(self, key):
        self.keys_asked.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.keys_asked.add(key)
        return super().get(key, default)

    def __contains__(self, key):
        self.keys_asked.add(key)
        return super().__contains__(key)


@pytest.mark.parametrize("kind", CALLS)
def test_the_assembly_reads_the_keys_of_the_table_and_no_others(kind):
    _, event, _, _ = CALLS[kind]
    if kind in ("enter", "back"):
        event = {key: value for key, value in event.items() if key != "r"}
    state = Assembly()
    if kind in ("exit", "redone"):
        state.take(read(events.enter("a", None)))
        state.take(read(events.redo("a", [], {})))
    asked = Asked(event)
    state.take(asked)
    assert asked.keys_asked == {"k", *events.EVENTS[kind].keys}


def test_the_specification_has_the_same_table():
    page = (files("probe_format") / "spec" / "journal.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    table = {kind.strip(" `"): tuple(re.findall(r"`(\w+)`", keys)) for kind, keys in rows}
    table.pop("k")
    assert table == {kind: row.keys for kind, row in events.EVENTS.items()}


@pytest.mark.parametrize("kind", events.EVENTS)
def test_keys_with_values_are_keys_of_the_kind(kind):
    row = events.EVENTS[kind]
    assert {*row.values, *row.pairs} <= set(row.keys)
