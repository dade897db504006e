"""Floats taken out of JSON: put back they give the same text, with the library of probe-fast and without it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format import json_floats, jsonio

KEYS = [b'"Max":', b',"Min":', b',"Mean":', b',"Norm":']
WAYS = [json_floats.take_floats, json_floats.by_pattern]
Take = Callable[[bytes, Sequence[bytes]], tuple[bytes, bytes]]

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9), st.none(), st.just("NaN")
)
TENSORS = st.fixed_dictionaries(
    {"type": st.text(max_size=5), **dict.fromkeys(("Max", "Min", "Mean", "Norm"), NUMBERS)}
)
RECORDS = st.recursive(
    TENSORS | st.text(max_size=5) | NUMBERS, lambda x: st.lists(x, max_size=4), max_leaves=8
)


def put_back(rest: bytes, floats: list[bytes]) -> bytes:
    """The text that these were taken out of."""
    pieces, numbers = rest.split(b"\0"), iter(floats)
    return pieces[0] + b"".join(b"".join(key + next(numbers) for key in KEYS) + piece for piece in pieces[1:])


@pytest.mark.parametrize("take", WAYS)
@given(record=RECORDS)
def test_nothing_is_lost(take: Take, record: object) -> None:
    text = jsonio.dumps(record)
    rest, floats = take(text, KEYS)
    each = floats.split(b",") if floats else []
    assert put_back(rest, each) == text
    assert all(type(x) is float for x in jsonio.loads(b"[%b]" % floats))


@pytest.mark.parametrize("take", WAYS)
def test_all_keys_with_floats_are_taken_and_nothing_else(take: Take) -> None:
    whole = b'{"Max":1.5,"Min":-2e3,"Mean":0.0,"Norm":1E+2,"x":1}'
    assert take(whole, KEYS) == (b'{\0,"x":1}', b"1.5,-2e3,0.0,1E+2")
    for other in (b'"Max":1,"Min"', b'"Max":1.5, "Min"', b'"Max":null,"Min"', b'"max":1.5,"Min"'):
        text = whole.replace(b'"Max":1.5,"Min"', other)
        assert take(text, KEYS) == (text, b"")
    assert take(b"", KEYS) == (b"", b"")


def test_where_probe_fast_is_not_installed_it_is_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'[{"Max":1.5,"Min":-2e3,"Mean":0.0,"Norm":1E+2}]'
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "probe_fast", None)
        importlib.reload(json_floats)
        assert json_floats.take_floats(text, KEYS) == json_floats.by_pattern(text, KEYS)
    importlib.reload(json_floats)
