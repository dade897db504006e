"""Events to documents: order, kills, passes, late numbers, and any prefix of any stream."""

import json

import pytest
from folded import assemble, documents_of, fold_of, upgraded
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_format import jsonio
from streams import streams
from strict_json import strict

HEAD = {"k": "head", "header": {"task": "statistics", "level": "mix"}}
LATE = {"k": "head", "header": {"task": "statistics", "level": "mix", "deferred": True}}


def t(**kw):
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **kw}


def enter(name, parent=None, **kw):
    return {"k": "enter", "n": name, "u": parent, "a": [], "w": {}, **kw}


def leave(name, *output, **kw):
    return {"k": "exit", "n": name, "o": list(output), **kw}


def done(*events, head=HEAD):
    return assemble([head, *events])


A, B, M = "Torch.a.0.forward", "Torch.b.0.forward", "Module.m.M.forward.0"
A_BACK, M_BACK = "Torch.a.0.backward", "Module.m.M.backward.0"


def test_nothing():
    documents = assemble([])
    assert (documents.header, documents.data, documents.stack, documents.construct) == ({}, {}, {}, {})
    assert (documents.coverage, documents.faults) == ({}, [])


def test_records_are_in_the_order_of_completion_and_their_keys_in_that_of_msprobe():
    documents = done(
        enter(M, a=[t()], p={"w": t()}, x={"in_backward": True}),
        enter(A, M),
        leave(A, t()),
        enter(B, M),
        leave(B),
        leave(M, t()),
    )
    assert list(documents.data) == [A, B, M]
    assert list(documents.data[M]) == ["input_args", "input_kwargs", "output", "parameters", "in_backward"]
    assert documents.data[A] == {"input_args": [], "input_kwargs": {}, "output": [t()]}
    assert documents.construct == {M: None, A: M, B: M}
    assert list(documents.construct) == [M, A, B]


def test_a_call_that_raised_and_calls_that_never_returned():
    documents = done(enter(M), enter(A, M), {"k": "exit", "n": A, "e": "ValueError: x"}, enter(B, M, a=[t()]))
    assert documents.data[A] == {
        "input_args": [],
        "input_kwargs": {},
        "output": [],
        "raised": "ValueError: x",
    }
    assert documents.data[B] == {"input_args": [t()], "input_kwargs": {}, "output": [], "incomplete": True}
    assert documents.data[M]["incomplete"] is True
    assert "incomplete" not in documents.data[A]


def test_what_is_not_recorded_leaves_its_place_only():
    documents = done(
        {"k": "frames", "i": 0, "f": ["x"]},
        enter(M, r=0, s=0),
        enter(A, M, r=2, s=0),
        leave(A, t()),
        leave(M),
    )
    assert documents.data == {}
    assert documents.construct == {M: None, A: M}
    assert documents.stack == {"0": [[A], ["x"]]}


def test_fields_that_are_filtered_out_are_absent():
    documents = done(
        {"k": "enter", "n": A, "u": None}, {"k": "exit", "n": A}, {"k": "enter", "n": B, "a": [t()]}
    )
    assert documents.data[A] == {}
    assert documents.data[B] == {"input_args": [t()], "output": [], "incomplete": True}


def test_calls_are_grouped_by_their_stack_in_first_seen_order():
    frames = [{"k": "frames", "i": 5, "f": ["x", "y"]}, {"k": "frames", "i": 2, "f": ["z"]}]
    documents = done(*frames, enter(A, s=2), enter(M, s=5), enter(B, s=2))
    assert documents.stack == {"0": [[A, B], ["z"]], "1": [[M], ["x", "y"]]}
    assert done(enter(A, s=9)).stack == {"0": [[A], []]}  # the frames were lost


def test_gradients_have_their_slots():
    call = [enter(A), leave(A, g=[2, [None, [None, None], {"k": None}]])]
    documents = done(
        *call, {"k": "back", "n": A_BACK, "t": 0, "i": [[[1], t()]], "o": [[[1, 1], t()], [[2, "k"], t()]]}
    )
    assert documents.data[A_BACK] == {"input": [None, t()], "output": [None, [None, t()], {"k": t()}]}
    documents = done(*call, {"k": "back", "n": A_BACK, "t": 0, "o": [[[4], t()]]})
    assert documents.data[A_BACK]["output"] == [None, [None, None], {"k": None}, None, t()]


def test_a_side_that_is_filtered_out_is_absent_and_a_lost_form_does_no_harm():
    back = {"k": "back", "n": A_BACK, "t": 0, "i": [[[1], t()]]}
    assert done(enter(A), leave(A, g=[2, None]), back).data[A_BACK] == {"input": [None, t()]}
    assert done(back).data[A_BACK] == {"input": [None, t()], "output": []}


def test_the_slots_of_one_call_are_not_those_of_another():
    form = [1, [[None]]]
    documents = done(
        enter(A),
        leave(A, g=form),
        {"k": "back", "n": A_BACK, "t": 0, "o": [[[0, 0], t()]]},
        {"k": "back", "n": A_BACK, "t": 1},
    )
    assert documents.data[A_BACK]["later_passes"] == [{"input": [None], "output": [[None]]}]


def test_later_passes_and_partial_sums():
    documents = done(
        enter(A),
        leave(A, g=[1, 1]),
        {"k": "back", "n": A_BACK, "t": 7, "i": [[[0], t(Max=7)]]},
        enter(B),
        leave(B),
        {"k": "back", "n": A_BACK, "t": 9, "i": [[[0], t(Max=9)]]},
        {"k": "back", "n": A_BACK, "t": 7, "o": [[[0], t(Max=1)]]},
        {"k": "back", "n": A_BACK, "t": 9, "o": [[[0], t(Max=2)]], "partial": True},
    )
    assert documents.data[A_BACK] == {
        "input": [t(Max=7)],
        "output": [t(Max=1)],
        "later_passes": [{"input": [t(Max=9)], "output": [t(Max=2)], "partial": True}],
    }
    assert list(documents.data) == [A, B, A_BACK]


def test_parameter_gradients_by_arrival():
    name = "Module.m.M.parameters_grad"
    documents = done(
        *({"k": "pgrad", "n": name, "q": q, "v": t(Max=i)} for i, q in enumerate(["b", "w", "b"]))
    )
    assert documents.data == {name: {"b": [t(Max=0), t(Max=2)], "w": [t(Max=1)]}}
    assert documents.construct == {}


def test_recomputation_is_told_in_the_record_and_takes_no_number():
    documents = done(
        enter(A),
        leave(A, t(Max=1)),
        {"k": "redo", "n": A, "a": [t(Max=2)], "w": {}},
        {"k": "redone", "n": A, "o": [t(Max=3)], "g": [1, 2]},
        {"k": "back", "n": A_BACK, "t": 0},
    )
    assert documents.data[A]["output"] == [t(Max=1)]
    assert documents.data[A]["recompute"] == {
        "input_args": [t(Max=2)],
        "input_kwargs": {},
        "output": [t(Max=3)],
    }
    assert documents.data[A_BACK] == {"input": [None], "output": [None, None]}
    cut = done(enter(A), leave(A), {"k": "redo", "n": A, "a": [], "w": {}})
    assert "output" not in cut.data[A]["recompute"]
    assert (
        done({"k": "redo", "n": A}, {"k": "redone", "n": A, "o": []}, {"k": "redone", "n": B, "o": []}).data
        == {}
    )


def numbers(ref, **kw):
    return {"k": "stat", "r": [[ref, kw]]}


@pytest.mark.parametrize("early", [False, True])
def test_late_numbers_fill_their_tensors(early):
    call = [
        enter(A, a=[t(**{"$": 1}), [{"k": t(**{"$": 2})}]]),
        leave(A, t(**{"$": 3, "$f": 4, "data_name": "f.pt"})),
    ]
    late = [
        numbers(1, Max=1),
        {"k": "stat", "r": [[2, {"Max": 2}], [3, {"Max": 3}]]},
        {"k": "file", "r": [4]},
    ]
    documents = done(*(late + call if early else call + late), head=LATE)
    assert documents.data[A] == {
        "input_args": [t(Max=1), [{"k": t(Max=2)}]],
        "input_kwargs": {},
        "output": [t(Max=3, data_name="f.pt")],
    }
    assert "deferred" not in documents.header


def test_what_never_came_is_told():
    documents = done(enter(A), leave(A, t(**{"$": 1, "$f": 2, "data_name": "f.pt", "Max": None})), head=LATE)
    (tensor,) = documents.data[A]["output"]
    assert set(tensor) == {"type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "unsupported", "lost"}
    assert "before this was written" in tensor["unsupported"]
    assert "before this was written" in tensor["lost"]


def test_late_numbers_are_looked_for_when_the_header_was_lost():
    documents = assemble([enter(A), leave(A, t(**{"$": 1})), numbers(1, Max=1)])
    assert documents.data[A]["output"] == [t(Max=1)]


def test_keys_of_the_users_own_are_no_references():
    for value in (None, {"type": "int", "value": 5}, [t()], {"$": None}):
        for key in ("$", "$f"):
            documents = done(enter(A, a=[{key: value}]), leave(A), numbers(5, Max=1), head=LATE)
            assert documents.data[A]["input_args"] == [{key: value}]


def test_faults_are_counted_by_kind_and_the_last_tally_counts():
    fault = {"k": "fault", "w": "here", "m": "E"}
    documents = done(
        fault, {**fault, "m": "F"}, fault, {"k": "tally", "d": {"a": 1}}, {"k": "tally", "d": {"b": 2}}
    )
    assert documents.faults == [
        {"where": "here", "message": "E", "count": 2},
        {"where": "here", "message": "F", "count": 1},
    ]
    assert documents.coverage == {"b": 2}


def test_every_parent_is_a_node():
    inner, inner_back = "Module.m.i.I.forward.0", "Module.m.i.I.backward.0"
    documents = done(
        enter(M), enter(inner, M), enter(A, inner), {"k": "back", "n": A_BACK, "u": inner_back, "t": 0}
    )
    assert documents.construct == {
        M: None,
        inner: M,
        A: inner,
        A_BACK: inner_back,
        inner_back: M_BACK,
        M_BACK: None,
    }
    assert done(enter(A, "optimizer")).construct == {A: "optimizer", "optimizer": None}


@settings(max_examples=100)  # in thirty, what is rare does not come
@given(streams())
def test_any_prefix_is_strict_json_and_loses_no_record(events):
    whole = assemble(events)
    names = []
    for cut in range(len(events) + 1):
        documents = assemble(events[:cut])
        raw = jsonio.dumps([documents.data, documents.stack, documents.construct, documents.faults])
        assert b"\x1a" not in raw
        strict(raw)
        assert set(names) <= set(documents.data)  # a record that is there stays
        names = list(documents.data)
        assert all(p is None or p in documents.construct for p in documents.construct.values())
    assert names == list(whole.data)


@settings(max_examples=100)
@given(streams(), st.data())
def test_unknown_events_and_keys_change_nothing(events, data):
    more = [{**event, "zz": {"future": 1}} for event in events]
    for _ in range(data.draw(st.integers(1, 3))):
        more.insert(data.draw(st.integers(0, len(more))), {"k": "future", "n": A, "o": [1]})
    assert assemble(more) == assemble(events)


@settings(max_examples=100)
@given(streams(deferred=True), st.data())
def test_it_does_not_matter_when_late_numbers_come(events, data):
    late = [e for e in events if e["k"] in ("stat", "file")]
    head, *rest = (e for e in events if e["k"] not in ("stat", "file"))
    moved = list(rest)
    for event in late:
        moved.insert(data.draw(st.integers(0, len(moved))), event)
    assert assemble([head, *moved]) == assemble([head, *rest, *late])


@settings(max_examples=100)
@given(streams())
def test_documents_may_be_asked_for_at_any_time(events):
    events = upgraded(events)
    fold = fold_of([])
    for event in events:
        documents_of(fold)
        fold.take(event)
    assert documents_of(fold) == documents_of(fold_of(events))


def test_the_streams_have_everything_in_them():
    """The properties above say nothing if the streams they run on are tame."""
    wanted = {"incomplete", "raised", "later_passes", "partial", "recompute", "lost", "unsupported"}
    kinds = {"enter", "exit", "back", "pgrad", "redo", "redone", "stat", "file", "fault", "tally", "frames"}
    seen = set()

    @settings(max_examples=200, derandomize=True)
    @given(streams())
    def look(events):
        text = json.dumps(assemble(events).data)
        seen.update(e["k"] for e in events)
        seen.update(word for word in wanted if f'"{word}"' in text)

    look()
    assert seen >= kinds | wanted
