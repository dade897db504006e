"""debug.json: names in both spellings, forms of gradients, the events of single-point save."""

import pytest
from corpus_cases import CORPUS
from folded import assemble
from probe_format import open as open_dump
from probe_format.errors import FormatError
from probe_format.jsonio import inert
from probe_format.names import DebugName, parse_debug_name

HEAD = {"k": "head", "header": {"task": "statistics", "level": "debug"}}
TENSOR = {
    "type": "T",
    "dtype": "f",
    "shape": [],
    "Max": 1.0,
    "Min": 1.0,
    "Mean": 1.0,
    "Norm": 1.0,
    "data_name": "x.npy",
}


@pytest.mark.parametrize(
    "name", ["x", "a.b", "a/../b", "new\nline", "x.0.debug", "x_grad", ".", "-x", " -x", "a;=b"]
)
def test_names_come_apart_again(name):
    assert parse_debug_name(str(DebugName(name, 7))) == DebugName(name, 7)
    assert str(DebugName(name, 7)) == f"{inert(name)}.7.debug"
    assert (
        parse_debug_name(f"{inert(name)}.3")
        == parse_debug_name(f"{inert(name)}.3.tensor")
        == DebugName(name, 3)
    )


@pytest.mark.parametrize("text", ["", "x", "x.debug", ".0.debug", "x.01.debug", "x.-1", "x.1.forward"])
def test_what_is_no_name(text):
    with pytest.raises(FormatError, match="not the name of a saved value"):
        parse_debug_name(text)


def test_the_records_of_msprobe_1_are_found_by_their_parts():
    (rank,) = open_dump(CORPUS / "torch" / "v1.2.2_debug" / "dump" / "rank").ranks
    assert [(r.parsed.name, r.parsed.count, r.kind) for r in rank.records] == [
        ("y", 0, "debug"), ("y_grad", 0, "debug"), ("dct", 0, "debug"), ("dct_grad", 0, "debug"),
    ]  # fmt: skip
    files = [t.file.name for r in rank.records for t in r.tensors]
    assert files[:3] == ["y.0.tensor..pt", "y_grad.0.tensor..pt", "dct.0.tensor.k.pt"]
    assert all(t.file.is_file() for r in rank.records for t in r.tensors)


def test_gradients_find_their_place():
    documents = assemble([
        HEAD,
        {"k": "save", "n": "x.0.debug", "v": {"a": [TENSOR, None]}, "g": ["x_grad.0.debug", {"a": [None, None]}]},
        {"k": "save", "n": "y.0.debug", "v": TENSOR, "g": ["y_grad.0.debug", None]},
        {"k": "save", "n": "z.0.debug", "v": None},
        {"k": "grad", "n": "y_grad.0.debug", "p": [], "v": dict(TENSOR)},
        {"k": "grad", "n": "x_grad.0.debug", "p": ["a", 0], "v": dict(TENSOR)},
        {"k": "grad", "n": "x_grad.0.debug", "p": ["a", 0], "v": {**TENSOR, "Max": 5.0}},
    ])  # fmt: skip
    assert list(documents.data) == ["x.0.debug", "x_grad.0.debug", "y.0.debug", "y_grad.0.debug", "z.0.debug"]
    assert documents.data["y_grad.0.debug"] == TENSOR
    first = documents.data["x_grad.0.debug"]["a"][0]
    again = {"Max": 5.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.0}
    assert first == {**TENSOR, "later_passes": [again]}
