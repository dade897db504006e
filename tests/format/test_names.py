"""Names: building, parsing, and file names that never collide."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from probe_format.errors import FormatError
from probe_format.names import (
    ApiName,
    DebugName,
    ModuleName,
    NodeName,
    ParamsGradName,
    first_forward,
    parse_name,
    parsed,
    safe_file_name,
    tensor_file_name,
    with_direction,
)

COUNT = st.integers(0, 10**6)
WORD = st.text(st.characters(exclude_characters="."), min_size=1, max_size=8) | st.sampled_from(
    [
        "forward",
        "backward",
        "parameters_grad",
        "optimizer_grad",
        "debug",
        "0",
        "7",
        "Module",
        "Cell",
        "optimizer",
    ]
)
DOTTED = st.lists(WORD, min_size=1, max_size=3).map(".".join)
DIRECTION = st.sampled_from(["forward", "backward"])
MODULE = st.sampled_from(["Module", "Cell"])
NAMES = st.one_of(
    st.builds(ApiName, WORD, DOTTED, COUNT, DIRECTION),
    st.builds(ModuleName, MODULE, DOTTED, WORD, DIRECTION, COUNT),
    st.builds(
        ParamsGradName,
        MODULE,
        DOTTED,
        WORD,
        st.none() | COUNT,
        st.sampled_from(["parameters_grad", "optimizer_grad"]),
    ),
    st.builds(DebugName, DOTTED, COUNT),
    st.builds(NodeName, st.sampled_from(["optimizer", "clip_grad"])),
)


@given(NAMES)
@example(ApiName("Module", "a.B.forward", 0, "forward"))
@example(ModuleName("Module", "parameters_grad", "forward", "backward", 0))
@example(DebugName("Module.a.B.parameters_grad", 3))
@example(DebugName("Torch.add.0.forward", 3))
@example(DebugName("@", 0))
def test_parsing_gives_back_what_was_built(name):
    assert parse_name(str(name)) == name
    assert parsed(str(name)) == name


@given(st.text(st.sampled_from(string.ascii_letters + "0123456789." + "_é\n"), max_size=40))
@example("Torch.a." + "1" * 5000 + ".forward")
@example("Module.a.B.forward." + "1" * 5000)
@example("Torch.a.00.forward")
@example("Torch.a.٣.forward")
@example("")
@example(".")
def test_any_text_is_a_name_that_round_trips_or_no_name(text):
    try:
        found = parse_name(text)
    except FormatError as error:
        assert repr(text[:100])[:-1] in str(error)  # a message stays one that a person can read
        assert parsed(text) is None
    else:
        assert str(found) == text


def test_names_of_msprobe_are_told_apart():
    assert parse_name("Module.conv1.Conv2d.parameters_grad.0") == ParamsGradName(
        "Module", "conv1", "Conv2d", 0
    )
    assert parse_name("Module.0.a.b.Conv2d.forward.12") == ModuleName(
        "Module", "0.a.b", "Conv2d", "forward", 12
    )
    assert parse_name("Torch.linalg.norm.3.backward") == ApiName("Torch", "linalg.norm", 3, "backward")
    assert parse_name("loss_grad.0.debug") == DebugName("loss_grad", 0)
    assert parse_name("optimizer") == NodeName("optimizer")
    for text in ("Module.fc.forward.0", "Torch.add.forward", "x.debug", "Torch.add.-1.forward", "optimizers"):
        assert parsed(text) is None


def test_the_backward_record_has_the_same_number():
    for forward, backward in (
        ("Torch.add.3.forward", "Torch.add.3.backward"),
        ("Module.a.B.forward.3", "Module.a.B.backward.3"),
        ("Module.forward.backward.forward.0", "Module.forward.backward.backward.0"),
    ):
        assert with_direction(forward, "backward") == with_direction(backward, "backward") == backward
        assert with_direction(backward, "forward") == with_direction(forward, "forward") == forward


@pytest.mark.parametrize(
    "name", ["optimizer", "forward", "forward.0", "x.0.debug", "Module.fc.L.parameters_grad", ""]
)
def test_a_name_without_a_direction_stays(name):
    assert with_direction(name, "backward") == with_direction(name, "forward") == name


def test_the_first_forward_record_of_a_module():
    assert first_forward("Module.fc.Linear.parameters_grad") == "Module.fc.Linear.forward.0"


SAFE = set(string.ascii_letters + string.digits + "._-")  # what msprobe opens
TEXTS = st.text(st.characters(), max_size=30) | st.text(st.sampled_from("ab./-é\0"), max_size=300)


def is_file_name(name):
    return name not in ("", ".", "..") and SAFE.issuperset(name) and len(name.encode()) <= 255


@given(TEXTS)
def test_a_file_name_is_safe_whatever_the_text(text):
    name = safe_file_name(text)
    assert is_file_name(name)
    assert safe_file_name(text) == name
    for suffix in (".pt", ".npy"):
        assert safe_file_name(text + suffix).endswith(suffix)
        assert is_file_name(safe_file_name(text + suffix))


@given(st.sets(TEXTS, max_size=8))
@example({"a/b", "a_b", "a:b", "A/b"})
@example({"x" * 300, "x" * 301, "x" * 299 + "y"})
def test_different_texts_have_different_file_names(texts):
    texts = texts | {safe_file_name(t) for t in texts}  # the name made for one may be another's text
    made = [t for t in texts if safe_file_name(t) != t]
    names = [safe_file_name(t) for t in texts]
    assert len({*names}) == len(names), made


@pytest.mark.parametrize("text", ["Functional.linear.0.forward.input.1.pt", "a-_.npy", "x" * 252 + ".pt"])
def test_a_safe_text_stays_as_it_is(text):
    assert safe_file_name(text) == text


@given(
    st.lists(
        st.lists(st.sampled_from([0, 1, "a", "b", "a.b", ".", "a\\", "\\", "~2", ""]), min_size=1, max_size=3)
    )
)
@example([["a", "b"], ["a.b"], ["a", "b.c"], ["a.b", "c"], ["a\\.b"], ["a\\", "b"]])
def test_no_two_places_of_a_record_have_one_file_name(places):
    """An index beside a key of the same digits is no pair: a container has indexes, or keys."""
    names = {tensor_file_name("Torch.add.0.forward", "input", place, "pt") for place in places}
    assert len(names) == len({tuple(map(str, place)) for place in places})


def test_tensor_file_names_are_those_of_msprobe():
    assert (
        tensor_file_name("Module.a.A.forward.0", "kwargs", ["cos"], "pt")
        == "Module.a.A.forward.0.kwargs.cos.pt"
    )
    assert (
        tensor_file_name("Torch.add.0.forward", "input", [0, "n", 3], "npy")
        == "Torch.add.0.forward.input.0.n.3.npy"
    )
    assert tensor_file_name("Module.fc.Linear.parameters_grad", "", ["weight"], "pt") == (
        "Module.fc.Linear.parameters_grad.weight.pt"
    )
