"""Events cut into pieces by their line breaks hold what a parser finds in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.journal import events
from probe_format.journal.pieces import VALUE, event_of, lines_of, pieces_of
from streams import constructed, streams

TEXTS = st.text(st.characters(codec=None, categories=None) | st.sampled_from('\n\t\\",:{}[]\udc80'))


def read(event):
    """The content of an event, from its lines one by one."""
    lines = lines_of(event)
    if len(lines) == 1:
        assert event_of(lines) == event
        return json.loads(event)
    assert json.loads(event_of(lines)) == json.loads(event)
    content = {}
    for letter, line in pieces_of(lines).items():
        ((key, value),) = json.loads(b"{%b}" % line[1:]).items()
        assert letter == ord(key[0])
        assert key == "partial" or json.loads(line[VALUE:]) == value
        content[key] = value
    return content


@given(streams())
def test_pieces_are_what_a_parser_finds(stream):
    for event in stream[1]:
        made = constructed(event)
        raw = made if isinstance(made, bytes) else jsonio.dumps(made)
        assert read(raw) == json.loads(raw) == json.loads(jsonio.dumps(event))


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_of_the_users_looks_like_the_end_of_a_piece(name, other, text):
    value = jsonio.dumps({"type": "str", "value": text})
    for event in (
        events.enter(name, other, arguments=[value, {other: value}], keywords={text: value}),
        events.exit(name, output=[value, text], raised=text),
        events.back(name, 0, other, inputs=[[[0], value], [[1, text], value]], outputs=[]),
        events.pgrad(name, other, value),
    ):
        assert read(event) == json.loads(event)


def test_an_event_from_elsewhere_is_parsed():
    assert read(b'{"k": "exit", "n": "a", "o": [1]}') == {"k": "exit", "n": "a", "o": [1]}
    assert read(b'{\n  "k": "exit",\n  "n": "a"\n}') == {"k": "exit", "n": "a"}
    event = events.back("b", 1, None, inputs=[[[0], None]], partial=True)  # a key of more than one letter
    assert read(event)["partial"] is True


@pytest.mark.parametrize("kind", ["enter", "exit", "redo", "redone", "back", "pgrad"])
def test_the_frequent_events_have_a_line_for_each_key(kind):
    more = {"redo": ([], {}), "enter": (None,), "back": (0, None), "pgrad": ("w", {})}
    event = getattr(events, kind)("a", *more.get(kind, ()))
    assert len(event.split(b"\n")) == len(json.loads(event))
