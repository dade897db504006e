"""Strict JSON, exact in both directions, whatever orjson thinks of it."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from strict_json import strict

TEXT = st.text(st.characters())  # lone surrogates included
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
EDGES = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**18, 10**19, 2**70, 10**40, -(2**63), -(2**63) - 1, -(10**30)]


def same(a, b):
    """Equal, and of the same types: 1, 1.0 and True are three values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


@given(VALUES)
def test_every_value_comes_back_exactly(value):
    raw = jsonio.dumps(value)
    assert same(jsonio.loads(raw), value)
    assert same(strict(raw), value)
    if raw.isascii():
        assert same(jsonio.loads(raw.decode()), value)


@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"a":{}}}', " [1.5,\n{} ,2]"])
def test_integers_are_exact_at_any_size(n, form):
    assert same(jsonio.loads(form.format(n)), json.loads(form.format(n)))
    assert same(jsonio.loads(form.format(n).encode()), json.loads(form.format(n)))


@given(st.text("-+=@%\uff0b\uff05; a", max_size=12) | st.text())
def test_no_text_looks_like_a_formula_and_each_comes_back(text):
    written = jsonio.inert(text)
    assert not re.search(r"(^|;)[-+=@%\uff0b\uff0d\uff1d\uff20\uff05]", written)
    assert jsonio.meant(written) == text
    assert re.sub(" ", "", written) == re.sub(" ", "", text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact_though_they_may_have_many_digits(x):
    assert jsonio.loads(jsonio.dumps([x])) == [x]
    assert jsonio.loads(f"[{x:.30f}]") == [float(f"{x:.30f}")]


@given(VALUES, VALUES)
def test_finished_json_is_put_in_as_it_is_whoever_encodes(value, other):
    raw = jsonio.dumps({"a": jsonio.dumps(value), "b": [jsonio.dumps(other), value]})
    assert same(strict(raw), {"a": value, "b": [other, value]})


@pytest.mark.parametrize("beside", ["\udc80", 2**70])
def test_finished_json_beside_what_orjson_refuses(beside):
    raw = jsonio.dumps({"o": jsonio.dumps([1, {"x": 2**65}]), "e": beside})
    assert strict(raw) == {"o": [1, {"x": 2**65}], "e": beside}


@pytest.mark.parametrize("value", [object(), {1, 2}, {"a": [object()]}, [2**70, object()]])
def test_what_json_has_no_word_for_is_an_error(value):
    with pytest.raises(TypeError):
        jsonio.dumps(value)


def test_a_non_finite_float_never_becomes_a_bare_token():
    assert jsonio.dumps([math.nan, math.inf]) == b"[null,null]"
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsonio.dumps([math.nan, 2**70])


@given(st.floats())
def test_finite_and_number_are_inverse(x):
    word = jsonio.finite(x)
    back = jsonio.number(strict(jsonio.dumps(word)))
    assert back == x or (math.isnan(back) and math.isnan(x))
    assert isinstance(word, str) == (not math.isfinite(x))


@pytest.mark.parametrize("value", [None, True, 3, "NaN?", "", "infinity", [1]])
def test_number_passes_other_values_on(value):
    assert jsonio.number(value) is value


def test_bare_tokens_of_msprobe_are_read():
    found = jsonio.loads(b'{"a": NaN, "b": [Infinity, -Infinity], "c": 18446744073709551616}')
    assert math.isnan(found["a"])
    assert found["b"] == [math.inf, -math.inf]
    assert found["c"] == 2**64


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b'{"a":}', b"[1,]", b"nan", b"\xff\xfe", b'"\xff"', b"[1] 2"),
        *(b"[" * 200_000, "[" * 200_000, b"[" * 200_000 + b"9" * 30, b"12345678901234567890,"),
    ],
)
def test_anything_else_is_a_value_error(raw):
    with pytest.raises(ValueError, match=r"."):
        jsonio.loads(raw)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_loads_raises_nothing_but_value_error(raw):
    try:
        found = jsonio.loads(raw)
    except ValueError:
        return
    assert isinstance(found, (type(None), bool, int, float, str, list, dict))
