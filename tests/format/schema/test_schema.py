"""The forms of the documents: their JSON Schemas, the check by them, and the tables of the specification."""

import functools
import json
import operator
import re
from importlib.resources import files

import pytest
from changed_json import changed, places
from corpus_cases import CORPUS
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from probe_format.schema.__main__ import files as made
from probe_format.schema.calls import check_construct, check_stack
from probe_format.schema.dump import Backward, Forward, Marks, check_debug, check_dump
from probe_format.schema.report import check_report

NAMES = ("dump", "debug", "stack", "construct", "report")
SCHEMAS = {
    name: json.loads((files("probe_format") / "schema" / f"{name}.schema.json").read_text()) for name in NAMES
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


def by_form(name, document):
    """Whether the check of the forms finds nothing."""
    if name in ("dump", "debug"):
        if not isinstance(document, dict) or not isinstance(document.get("data"), dict):
            return False  # parse_dump refuses it
        header = {key: value for key, value in document.items() if key != "data"}
        check = check_dump if name == "dump" else check_debug
        return not list(check(header, document["data"]))
    check = {"stack": check_stack, "construct": check_construct, "report": check_report}[name]
    return not list(check(document))


def agree(name, document):
    by_schema = VALIDATORS[name].is_valid(document)
    assert by_form(name, document) == by_schema, [e.message for e in VALIDATORS[name].iter_errors(document)]
    return by_schema


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name):
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_the_files_are_those_of_the_forms():
    """Write them with `python -m probe_format.schema`."""
    folder = files("probe_format") / "schema"
    assert made() == {f"{name}.schema.json": (folder / f"{name}.schema.json").read_text() for name in NAMES}


TABLES = [
    ("dump", "| `task` |", SCHEMAS["dump"]["then"]),
    ("report", "| `format_version` |", SCHEMAS["report"]),
    ("statistics", "| `type` |", SCHEMAS["dump"]["$defs"]["tensor"]),
]


@pytest.mark.parametrize(("page", "first", "schema"), TABLES, ids=[page for page, _, _ in TABLES])
def test_a_table_of_the_specification_has_the_keys_of_the_form(page, first, schema):
    text = (files("probe_format") / "spec" / f"{page}.md").read_text()
    rows = (first + text.split(first, 1)[1]).split("\n\n")[0].splitlines()
    told = [key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(told) == sorted(schema["properties"])


@pytest.mark.parametrize(("title", "parts"), [("Forward", (Forward, Marks)), ("Backward", (Backward, Marks))])
def test_the_tables_of_records_have_the_keys_of_their_forms(title, parts):
    text = (files("probe_format") / "spec" / "dump.md").read_text().split(f"**{title}** (", 1)[1]
    told = {key for row in re.findall(r"\n\| `(\w+)` \|", text.split("\n\n", 2)[1]) for key in [row]}
    known = {key for part in parts for key in part.__annotations__}
    assert told <= known and set(parts[0].__annotations__) <= told


@pytest.mark.parametrize("path", sorted(CORPUS.glob("**/step*/**/*.json")), ids=str)
def test_every_file_of_the_corpus_is_valid(path):
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        assert "np_c" in str(path)
        return
    assert agree(path.stem, document)


TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": " -inf",
    "Mean": None,
    "Norm": "NaN",
    "requires_grad": False,
    "nan_count": 0,
    "posinf_count": 0,
    "neginf_count": 1,
    "finite_max": 1.0,
    "finite_min": 1.0,
}
HEADER = {
    "task": "statistics",
    "level": "mix",
    "framework": "pytorch",
    "dump_data_dir": None,
    "format_version": "1.0",
    "tool": "probe-torch 0.1.0",
}
FORWARD = {
    "input_args": [TENSOR, None, [{"type": "int", "value": 1}]],
    "input_kwargs": {"k": TENSOR},
    "output": [],
}
VALID = {
    "dump": {
        **HEADER,
        "labels": ["req-42"],
        "data": {
            "Module.fc.Linear.forward.0": {
                **FORWARD,
                "parameters": {"w": TENSOR},
                "recompute": FORWARD,
                "label": "req-42",
            },
            "Torch.log.0.forward": {**FORWARD, "raised": "ValueError: no", "incomplete": True},
            "Torch.log.0.backward": {
                "input": [None],
                "output": [{**TENSOR, "shared_with": ["output.1"]}, {**TENSOR, "shared_with": ["output.0"]}],
                "later_passes": [{"input": [TENSOR]}],
            },
            "Module.fc.Linear.parameters_grad": {"w": [TENSOR]},
        },
    },
    "debug": {
        **HEADER,
        "level": "debug",
        "data": {"x.0.debug": {"a": [TENSOR, None]}, "x_grad.0.debug": None},
    },
    "stack": {"0": [["Torch.log.0.forward"], ["File a.py, line 1, in f, \n g()"]]},
    "construct": {"Torch.log.0.forward": "Module.a.A.forward.0", "Module.a.A.forward.0": None, "m": ["x", 1]},
    "report": {
        "format_version": "1.0",
        "state": "complete",
        "header": HEADER,
        "files": {"dump.json": {"bytes": 3, "crc32": "00000000"}},
        "journal": {"bytes": 8},
        "counts": {"seen": {"calls": 1}},
        "not_seen": [{"what": "x", "why": "y"}],
        "graphs": {"Net": {"runs": 1, "equal": 1, "differs": [], "shares": [], "copied": []}},
        "faults": [{"where": "x", "message": "y", "count": 1}],
        "unmatched": [],
        "records": 1,
        "tensors": 1,
        "tensor_files": 0,
        "norms": [["a.output.0", 1.5]],
        "first_non_finite": None,
        "started": "2026-11-21T00:00:00+00:00",
        "ended": None,
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_valid(name):
    assert agree(name, VALID[name])


LINEAR = "Module.fc.Linear.forward.0"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("report", "graphs"), []),
        (("report", "graphs", "Net"), 1),
        (("dump", "data"), []),
        (("dump", "labels"), "req-42"),
        (("dump", "labels", 0), 42),
        (("dump", "data", LINEAR, "label"), 42),
        (("dump", "task"), "stats"),
        (("dump", "level"), "L3"),
        (("dump", "tool"), KeyError),
        (("dump", "format_version"), "2.0"),
        (("dump", "dump_data_dir"), 3),
        (("dump", "data", LINEAR), []),
        (("dump", "data", LINEAR, "input_args"), {}),
        (("dump", "data", LINEAR, "input_args", 0, "shape"), [-1]),
        (("dump", "data", LINEAR, "input_args", 0, "shape"), ["2"]),
        (("dump", "data", LINEAR, "input_args", 0, "Max"), "Inf"),
        (("dump", "data", LINEAR, "input_args", 0, "Norm"), KeyError),
        (("dump", "data", LINEAR, "input_args", 0, "neginf_count"), KeyError),
        (("dump", "data", LINEAR, "input_args", 0, "nan_count"), -1),
        (("dump", "data", LINEAR, "input_args", 0, "data_name"), 7),
        (("dump", "data", LINEAR, "input_args", 0, "md5"), 2.5),
        (("dump", "data", LINEAR, "input_args", 0, "sketch"), [0.5]),
        (("dump", "data", "Torch.log.0.backward", "output", 0, "shared_with"), []),
        (("dump", "data", "Torch.log.0.backward", "output", 0, "shared_with"), "output.1"),
        (("dump", "data", "Torch.log.0.backward", "output", 0, "shared_with"), [1]),
        (("dump", "data", LINEAR, "input_args", 1), 5),
        (("dump", "data", LINEAR, "input_args", 2, 0), "bare"),
        (("dump", "data", LINEAR, "input_kwargs", "type"), "bare"),
        (("dump", "data", LINEAR, "output"), None),
        (("dump", "data", LINEAR, "recompute", "input_args", 1), False),
        (("dump", "data", "Torch.log.0.forward", "raised"), True),
        (("dump", "data", "Torch.log.0.forward", "incomplete"), "yes"),
        (("dump", "data", "Torch.log.0.backward", "later_passes", 0), []),
        (("dump", "data", "Module.fc.Linear.parameters_grad", "w"), TENSOR),
        (("dump", "data", "Torch.log.0.sideways"), {}),
        (("debug", "level"), "mix"),
        (("debug", "data", "x"), None),
        (("debug", "data", "x.0.debug", "a", 0), 1),
        (("stack", "0"), [["a"], ["b"], ["c"]]),
        (("stack", "1"), ["a frame"]),
        (("construct", "Module.a.A.forward.0"), 1),
        (("construct", "m"), ["x"]),
        (("construct", "megatron_micro_step_number"), "1"),
        (("report", "state"), "fine"),
        (("report", "journal"), {}),
        (("report", "journal"), KeyError),
        (("report", "files", "dump.json", "crc32"), KeyError),
        (("report", "counts", "seen", "calls"), -1),
        (("report", "norms", 0), ["a"]),
        (("report", "records"), 1.5),
        (("report", "ended"), 0),
        (("report", "first_non_finite"), []),
    ],
    ids=str,
)
def test_what_is_not_valid(path, to):
    assert not agree(path[0], changed(VALID, path, to)[path[0]])


def test_a_dump_of_msprobe_may_lack_everything_but_data():
    assert agree("dump", {"data": {"x": {"input_args": 3, "anything": [{"type": "int"}]}}})
    for wrong in (
        {"shape": [None]},
        {"shape": "2, 3"},
        {"shape": None},
        {"dtype": None},
        {"dtype": ["d"]},
        {"Min": "x"},
    ):
        tensor = {"type": "t", "dtype": "d", "shape": [], **wrong}
        assert not agree("dump", {"data": {"x": {"a": tensor}}})
        assert not agree("debug", {"data": {"x": tensor}})
    assert not agree("dump", {"data": {"x": None}})
    assert not agree("dump", {"data": {}, "task": 3})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([1.5, 2.0, -0.0, "NaN", "inf", "", "torch"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "dtype", "shape", "class_type", "Max", "0"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_form_and_schema_agree_on_changed_documents(name, data):
    document = VALID[name]
    for _ in range(data.draw(st.integers(1, 3))):
        found = [path for path in places(document) if path]
        if not found:
            break
        path = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            document = changed(document, path, data.draw(JSON))
            continue
        *above, key = path
        there = functools.reduce(operator.getitem, path, document)
        document = changed(document, path, KeyError)
        if isinstance(key, str):
            other = data.draw(st.sampled_from(["x.forward", "y.0.debug", "0", "type", "md5"]))
            document = changed(document, (*above, other), there)
    agree(name, document)
