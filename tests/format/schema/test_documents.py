"""dump.json, stack.json, construct.json, report.json: each parser alone."""

import json

import pytest
from folded import bytes_of
from hypothesis import example, given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.errors import DamagedError, FormatError
from probe_format.schema import is_tensor, non_finite, path_text, tensors
from probe_format.schema.calls import Construct, Stack, parse_construct, parse_stack
from probe_format.schema.dump import parse_dump
from probe_format.schema.report import parse_report

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0}
OURS = (
    b'{"task":"statistics","level":"L1","format_version":"1.0",\n"data": {\n'
    b'"Torch.a.0.forward": {"input_args":[]},\n"Torch.\\"b\\".0.forward": {"output":[1]}\n}}\n'
)


def same(raw):
    """The document by lines and the document parsed whole are the same."""
    document, whole = parse_dump(raw), json.loads(raw)
    data = whole.pop("data")
    assert dict(document.header) == whole
    assert list(document.records) == list(data)
    assert {name: document.records[name] for name in document.records} == data
    return document


def test_a_dump_with_a_record_per_line_is_indexed_and_not_parsed():
    document = same(OURS)
    assert type(document.records) is not dict
    assert len(document.records) == 2
    # A record is parsed when it is asked for, so only the changed one is damaged.
    changed = parse_dump(OURS.replace(b'"output":[1]', b'"output":[1 '))
    assert changed.records["Torch.a.0.forward"] == {"input_args": []}
    with pytest.raises(DamagedError, match=r'Torch\."b"\.0\.forward'):
        changed.records['Torch."b".0.forward']


@pytest.mark.parametrize(
    "raw",
    [
        OURS.replace(b"\n", b"\r\n"),
        OURS.replace(b"}}\n", b"}\n}"),
        b'{"format_version":"1.0","data": {}}',
        b'{"format_version":"1.0",\n"data": {\n}}',
        b'{"data": {"a.0.forward": {}},\n"format_version":"1.0"}',
        b'{"format_version":"1.0",\n"data": {\n"a": {},\n"b": {\n"c": 1}}}',
        b'{"format_version":"1.0",\n"data": {\n"a": {}\n}, "more": {}}',
        b'{"format_version":"1.0","x":{\n"data": {\n"a": {}\n}},"data":{}}',
    ],
)
def test_another_layout_of_lines_is_the_same_dump(raw):
    same(raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"task": "tensor", "data": {"a": ', "cut short after"),
        (OURS[:-4], "cut short after"),
        (OURS[:-2], "cut short after"),
        (OURS[:70], "cut short after"),
        (b"PK\x03\x04", "not JSON"),
        (b"[]", "not an object"),
        (b'{"task": "tensor"}', "no object under 'data'.*task"),
        (b'{"data": []}', "no object under 'data'"),
        (b'{"a":' * 3000 + b"}" * 3000, "not JSON"),
    ],
)
def test_what_is_no_dump_says_so(raw, says):
    with pytest.raises(FormatError, match=says) as caught:
        parse_dump(raw, "x/dump.json")
    assert str(caught.value).startswith("x/dump.json")


def test_tensors_come_with_their_slots():
    record = {
        "input_args": [TENSOR, None, [{"type": "int", "value": 1}, {"k": TENSOR}]],
        # A keyword called type, and one called shape, hide nothing.
        "input_kwargs": {"type": TENSOR, "shape": [TENSOR], "dtype": {"type": "str", "value": "x"}},
        "parameters": {"fc.weight": TENSOR},
    }
    found = [path_text(path) for path, _ in tensors(record)]
    assert found == [
        "input_args.0",
        "input_args.2.1.k",
        "input_kwargs.type",
        "input_kwargs.shape.0",
        "parameters.fc.weight",
    ]
    assert not is_tensor({"type": "torch.Size", "value": [1]})


def test_the_stack_reads_grouped_and_flat():
    grouped = parse_stack(b'{"0": [["a.forward", "b.forward"], ["f1", "f2"]], "1": [["c.forward"], []]}')
    assert grouped.of("b.forward") == ("f1", "f2")
    assert grouped.of("c.forward") == () and "c.forward" in grouped
    assert grouped.of("unknown") == () and "unknown" not in grouped
    flat = parse_stack(b'{"a.forward": ["f1", "f2"], "b.forward": ["f1", "f2"], "c.forward": []}')
    assert flat == grouped
    assert parse_stack(b"{}") == Stack()


@pytest.mark.parametrize(
    "raw", [b'{"0": [["a"], "f"]}', b'{"0": 1}', b'{"0": [["a"],["f"]], "b": ["f"]}', b"[]"]
)
def test_what_is_no_stack_says_so(raw):
    with pytest.raises(FormatError, match=r"stack\.json"):
        parse_stack(raw)


def test_the_construct_knows_parents_and_micro_steps():
    raw = b'{"a": null, "b": ["a", 2], "c": "b", "lost": "gone", "megatron_micro_step_number": 4}'
    construct = parse_construct(raw)
    assert construct.ancestors("c") == ("b", "a")
    assert construct.micro_steps == {"b": 2}
    parents = {"a": None, "b": "a", "c": "b", "lost": None, "saved.0.debug": None}
    assert construct.with_records(("a", "saved.0.debug")) == parents
    assert [str(fault) for fault in construct.faults()] == [
        "construct.json 'lost': its parent 'gone' is not a node."
    ]


def test_a_circle_in_the_construct_ends():
    circle = Construct({"a": "b", "b": "c", "c": "b", "d": None})
    assert circle.ancestors("a") == ("b", "c")
    assert [fault.what for fault in circle.faults()] == ["encloses itself."]
    assert not Construct({"a": None, "b": "a", "c": "b"}).faults()


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        ({"Max": 1.0, "Min": -1.0, "Norm": "Infinity", "Mean": "NaN"}, ""),  # fp16 overflow in msprobe
        ({"Max": "NaN", "Min": "NaN"}, "NaN"),
        ({"Max": float("inf"), "Min": 1}, "+Inf"),
        ({"Max": "Infinity", "Min": "-Infinity"}, "+Inf, -Inf"),
        ({"Max": "inf", "Min": 0.0}, "+Inf"),
        ({"Norm": "NaN", "neginf_count": 3}, "3 -Inf"),
        ({"Max": "NaN", "nan_count": 3, "posinf_count": 0, "neginf_count": 1}, "3 NaN, 1 -Inf"),
        ({"Max": True, "Min": None}, ""),
        ({"Max": 10**400, "Min": -1}, ""),
        ({}, ""),
    ],
)
def test_what_is_not_finite(tensor, why):
    assert non_finite(tensor) == why


REPORT = {
    "format_version": "1.0",
    "state": "complete",
    "header": {},
    "files": {"dump.json": {"bytes": 3, "crc32": "0"}},
    "journal": {"bytes": 8},
    "counts": {"seen": {"calls": 2}},
    "records": 2,
    "tensors": 1,
    "tensor_files": 0,
    "norms": [["a.output.0", 2]],
}


def test_a_report_gives_its_fields():
    report = parse_report(json.dumps({**REPORT, "more": 1}).encode())
    assert (report.state, report.covered, report.records) == ("complete", 8, 2)
    assert report.norms == (("a.output.0", 2.0),)
    assert report.document["more"] == 1
    with pytest.raises(FormatError, match=r"report.json: state: 'done' is not one of"):
        parse_report(json.dumps({**REPORT, "state": "done"}).encode())


SEEDS = {
    parse_dump: OURS,
    parse_stack: b'{"0": [["a.forward"], ["f1"]]}',
    parse_construct: b'{"a": null, "b": ["a", 2], "megatron_micro_step_number": 4}',
    parse_report: json.dumps(REPORT).encode(),
}


@pytest.mark.parametrize("parse", SEEDS, ids=lambda parse: parse.__name__)
@given(data=st.data())
def test_changed_bytes_give_a_document_or_a_format_error(parse, data):
    raw = bytearray(SEEDS[parse])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        cut = data.draw(st.integers(0, 8))
        raw[at : at + cut] = data.draw(
            st.binary(max_size=8) | st.sampled_from([b"[", b"{", b'"', b"\\u0000", b"1e999"])
        )
    try:
        document = parse(bytes(raw))
        if parse is parse_dump:
            for name in document.records:
                list(tensors(document.records[name]))
    except FormatError as error:
        assert str(error)


names = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
records = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(names, st.dictionaries(names, records, max_size=3), max_size=4))
@example({'a": {\n': {"b": "\n}}"}})
def test_records_by_line_are_the_records_that_were_written(data):
    from probe_format.write import Documents

    header = {"format_version": "1.0", "tool": '"data": {\n'}
    raw = bytes_of(Documents(header, data, {}, {}, {}, []))["dump.json"]
    document = parse_dump(raw)
    assert list(document.records) == list(data)
    assert {name: document.records[name] for name in document.records} == data
    assert jsonio.loads(raw) == {**header, "data": data}
