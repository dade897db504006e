"""The journal's grammar: the functions that make events, the fold that takes them, and the specification."""

import inspect
import json
import re
from importlib.resources import files

import pytest
from probe_format import jsonio
from probe_format.journal import Fold, events
from probe_format.journal.frames import JournalWriter
from probe_format.journal.reading import read_journal

#: Every function with all of its arguments, and the event that it makes.
CALLS = {
    "head": (events.head({"task": "x"}, 2), {"k": "head", "header": {"task": "x"}, "room": "  "}, []),
    "frames": (events.frames(3, ("a", "b")), {"k": "frames", "i": 3, "f": ["a", "b"]}, []),
    "enter": (
        events.enter(
            "a",
            "m",
            "awpb",
            [b"[2]", b"{}", b"{}", b"{}"],
            stack=1,
            extra={"y": 4},
            kept=2,
        ),
        {"k": "enter", "n": "a", "u": "m", "s": 1, "r": 2, "x": {"y": 4}, "v": "awpb"},
        [b"[2]", b"{}", b"{}", b"{}"],
    ),
    "exit": (events.exit("a", raised="E: no"), {"k": "exit", "n": "a", "e": "E: no"}, []),
    "redo": (events.redo("a", b"[]", b"{}"), {"k": "redo", "n": "a"}, [b"[]", b"{}"]),
    "redone": (events.redone("a", output=b"[5]"), {"k": "redone", "n": "a"}, [b"[5]"]),
    "back": (
        events.back(
            "b", 0, None, form=(1, 2), slots=[("i", 0)], values=[b"1"], waiting=[("o", 1)], partial=True
        ),
        {
            "k": "back",
            "n": "b",
            "t": 0,
            "u": None,
            "g": [1, 2],
            "w": [["o", 1]],
            "partial": True,
            "v": [["i", 0]],
        },
        [b"1"],
    ),
    "over": (events.over(), {"k": "over"}, []),
    "pgrad": (events.pgrad("p", "weight", b"1"), {"k": "pgrad", "n": "p", "q": "weight"}, [b"1"]),
    "save": (
        events.save("x", b"1", ("y", None), [(0,)]),
        {"k": "save", "n": "x", "g": ["y", None], "w": [[0]]},
        [b"1"],
    ),
    "grad": (events.grad("y", ("a", 0), b"1", 2), {"k": "grad", "n": "y", "p": ["a", 0], "t": 2}, [b"1"]),
    "fill": (events.fill([(1, b',"Max":2.0')]), {"k": "fill", "h": [1]}, [b',"Max":2.0']),
    "fault": (events.fault("here", "E"), {"k": "fault", "w": "here", "m": "E"}, []),
    "tally": (events.tally({"counts": {}}), {"k": "tally", "d": {"counts": {}}}, []),
}


def test_every_kind_has_its_function_and_every_function_its_kind():
    made = {
        name for name, f in inspect.getmembers(events, inspect.isfunction) if f.__module__ == events.__name__
    }
    made = {name for name in made if not name.startswith("_")} - {"opens"}
    assert made == set(CALLS) == {name[3:] for name in vars(Fold) if name.startswith("on_")}


@pytest.mark.parametrize("kind", CALLS)
def test_an_event_is_made_and_read_as_specified(kind, tmp_path):
    made, head, values = CALLS[kind]
    assert json.loads(jsonio.dumps(made[0])) == head
    writer = JournalWriter(tmp_path / "j", lambda *event: None)
    writer.append(made)
    assert list(read_journal(tmp_path / "j").events) == [(head, values)]


@pytest.mark.parametrize("kind", CALLS)
def test_the_table_has_every_key(kind):
    page = (files("probe_format") / "spec" / "journal.md").read_text()
    (row,) = re.findall(rf"^\| `{kind}` \|([^|]*)\|", page, re.MULTILINE)
    keys = set(CALLS[kind][1]) - {"k"} | ({"r"} if kind == "back" else set())
    assert set(re.findall(r"`(\w+)`", row)) == keys


def test_events_that_open_a_late_folder():
    assert {kind for kind, (event, *_) in CALLS.items() if not events.opens(event)} == {
        *("head", "frames", "tally", "over")
    }
