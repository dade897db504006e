"""Events cut into pieces by their line breaks hold what a parser finds in them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.journal import events
from probe_format.journal.pieces import VALUE, key, pieces
from streams import constructed, streams

TEXTS = st.text(st.characters(codec=None, categories=None) | st.sampled_from('\n\t\\",:{}[]\udc80'))


def read(event):
    return {name: json.loads(line[VALUE:]) for name, line in pieces(event).items()}


def parsed(event):
    return {key(name): value for name, value in json.loads(event).items()}


@given(streams())
def test_pieces_are_what_a_parser_finds(stream):
    for event in stream[1]:
        made = constructed(event)
        raw = made if isinstance(made, bytes) else jsonio.dumps(made)
        assert (
            read(raw)
            == parsed(raw)
            == {key(name): value for name, value in json.loads(jsonio.dumps(event)).items()}
        )


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_of_the_users_looks_like_the_end_of_a_piece(name, other, text):
    value = jsonio.dumps({"type": "str", "value": text})
    for event in (
        events.enter(name, other, arguments=[value, {other: value}], keywords={text: value}),
        events.exit(name, output=[value, text], raised=text),
        events.back(name, 0, other, inputs=[[[0], value], [[1, text], value]], outputs=[]),
        events.pgrad(name, other, value),
    ):
        assert read(event) == parsed(event)


def test_an_event_from_elsewhere_is_parsed():
    assert read(b'{"k": "exit", "n": "a", "o": [1]}') == {key("k"): "exit", key("n"): "a", key("o"): [1]}
    assert read(b'{\n  "k": "exit",\n  "n": "a"\n}') == {key("k"): "exit", key("n"): "a"}
    event = events.back("b", 1, None, inputs=[[[0], None]], partial=True)  # a key of more than one letter
    assert read(event)["partial"] is True


@pytest.mark.parametrize("kind", ["enter", "exit", "redo", "redone", "back", "pgrad"])
def test_the_frequent_events_have_a_line_for_each_key(kind):
    more = {"redo": ([], {}), "enter": (None,), "back": (0, None), "pgrad": ("w", {})}
    event = getattr(events, kind)("a", *more.get(kind, ()))
    assert len(event.split(b"\n")) == len(json.loads(event))
