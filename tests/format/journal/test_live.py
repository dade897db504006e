"""The same fold, fed live and from a file: from memory, by places in the journal, and packed."""

import os

import pytest
from folded import documents_of, fold_of, upgraded
from hypothesis import given
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.journal import events
from probe_format.journal.fold import Fold
from probe_format.journal.frames import JournalWriter
from probe_format.journal.reading import folded, read_journal
from streams import streams

TENSOR = (
    b'{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}'
)
A, BACK = "Torch.a.0.forward", "Torch.a.0.backward"
HEAD = events.head({"task": "statistics", "level": "mix", "format_version": "1.0"})


def files(fold, places=None):
    return {name: b"".join(chunks) for name, chunks in fold.pages(places).files().items()}


@given(streams(), st.booleans(), st.integers(0, 3))
def test_live_from_a_file_by_places_and_packed_are_the_same(tmp_path_factory, stream, places, most):
    path = tmp_path_factory.mktemp("j") / "records.journal"
    live = Fold(kept=0) if places else Fold()
    live.data.most = live.nodes.most = most or 8192
    writer = JournalWriter(path, live.take)
    made = upgraded(stream)
    for event in made:
        writer.append(event)
    expected = documents_of(fold_of(made))
    assert documents_of(folded(read_journal(path))) == expected
    found = files(live, writer.places())
    assert found == files(fold_of(made))
    assert list(documents_of(folded(read_journal(path))).data) == list(expected.data)
    writer.close()


def test_many_records_are_packed_and_written_in_their_order(tmp_path):
    fold = Fold(kept=1 << 14)
    fold.data.most = fold.nodes.most = 64
    writer = JournalWriter(tmp_path / "j", fold.take)
    writer.append(HEAD)
    made = [HEAD]
    for i in range(500):
        name, back = f"Torch.a.{i}.forward", f"Torch.a.{i}.backward"
        made += [
            events.enter(name, None, "aw", (b"[%b]" % TENSOR, b"{}"), stack=i % 3),
            events.exit(name, output=b"[%d]" % i),
            events.back(back, 0, None, form=(1, 2), slots=[("i", 0)], values=[TENSOR], waiting=[("o", 1)]),
        ]
    for i in range(0, 500, 7):  # long after their records were packed
        back = f"Torch.a.{i}.backward"
        made.append(events.back(back, 0, None, form=(1, 2), slots=[("o", 1)], values=[TENSOR]))
        made.append(events.redo(f"Torch.a.{i}.forward", b"[1]", b"{}"))
        made.append(events.pgrad("Module.m.M.parameters_grad", "w", b"%d" % i))
    made.append(events.over())
    for event in made[1:]:
        writer.append(event)
    assert files(fold, writer.places()) == files(fold_of(made))
    assert len(fold.data.rows_open) <= 65


SLOTS = [("x", ()), ("l", (0,)), ("l", (1,)), ("d", ("a",)), ("d", ("b", 1, "7")), ("d", ("b", 0))]


@given(
    st.lists(st.sampled_from([*SLOTS, "redo", "redone", "over"]), max_size=20),
    st.booleans(),
    st.integers(1, 4),
)
def test_what_comes_late_joins_a_record_that_is_packed(tmp_path_factory, order, places, most):
    forms = {"x": None, "l": [None, None], "d": {"a": None, "b": [None, {"7": None}]}}
    made = [HEAD, events.enter(A, None, "aw", (b"[]", b"{}")), events.exit(A, output=b"[0]")]
    for name, form in forms.items():
        waiting = [path for owner, path in SLOTS if owner == name]
        made.append(events.save(f"{name}.0.debug", TENSOR, (f"{name}_grad.0.debug", form), waiting))
    for i, what in enumerate(order):
        if what == "redo":
            made.append(events.redo(A, b"[%d]" % i, b"{}"))
        elif what == "redone":
            made.append(events.redone(A, output=b"[%d]" % i))
        elif what == "over":
            made.append(events.over())
        else:
            name, path = what
            made.append(events.grad(f"{name}_grad.0.debug", path, b'{"Max":%d}' % i, order[:i].count(what)))
    packed = Fold(kept=0) if places else Fold()
    packed.data.most = most
    writer = JournalWriter(tmp_path_factory.mktemp("j") / "records.journal", packed.take)
    for event in made:
        writer.append(event)
    assert files(packed, writer.places()) == files(fold_of(made))
    writer.close()


def test_a_first_gradient_that_was_lost_with_a_part_of_the_journal_is_not_the_second():
    again = events.grad("x_grad.0.debug", [], b'{"Max":2.0}', 1)
    (row,) = documents_of(fold_of([HEAD, again])).data.values()
    assert (row["type"], row["later_passes"]) == ("lost", [{"Max": 2.0}])


def test_a_journal_that_was_changed_meanwhile_is_an_error_and_no_wrong_number(tmp_path):
    fold = Fold(kept=0)
    writer = JournalWriter(tmp_path / "j", fold.take)
    writer.append(events.enter(A, None, "aw", (b"[%b]" % TENSOR, b"{}")))
    with open(tmp_path / "j", "r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"9")
    with pytest.raises(OSError, match="does not hold what was written"):
        files(fold, writer.places())


def back(**more):
    return events.back(BACK, 0, None, form=(1, 3), slots=[("i", 0), ("o", 0)], values=[TENSOR] * 2, **more)


def test_a_slot_that_waits_is_lost_until_its_gradient_comes_or_none_is_on_its_way():
    first = back(waiting=[("o", 2)])
    (row,) = documents_of(fold_of([HEAD, first])).data.values()
    empty, lost = row["output"][1:]
    assert empty is None
    assert lost == {
        "type": "lost",
        "value": None,
        "lost": "gradient: the process ended before this was written",
    }
    second = events.back(BACK, 0, None, form=(1, 3), slots=[("o", 2)], values=[TENSOR])
    (row,) = documents_of(fold_of([HEAD, first, second])).data.values()
    assert row["output"][2]["Max"] == 1.0
    (row,) = documents_of(fold_of([HEAD, first, events.over()])).data.values()
    assert row["output"][2] is None
    (row,) = documents_of(fold_of([HEAD, events.over(), first])).data.values()
    assert row["output"][2]["type"] == "lost"


def test_gradients_of_a_saved_value_wait_from_the_first_one_on():
    save = events.save("x.0.debug", b"[1,2]", ("x_grad.0.debug", [None, None, None]), [(0,), (2,)])
    grad = events.grad("x_grad.0.debug", [0], TENSOR)
    assert documents_of(fold_of([HEAD, save])).data["x_grad.0.debug"] == [None, None, None]
    first, none, lost = documents_of(fold_of([HEAD, save, grad])).data["x_grad.0.debug"]
    assert (first["Max"], none, lost["type"]) == (1.0, None, "lost")
    assert documents_of(fold_of([HEAD, save, grad, events.over()])).data["x_grad.0.debug"][2] is None
    again = events.grad("x_grad.0.debug", [0], b'{"Max":2.0}', 1)
    found = documents_of(fold_of([HEAD, save, grad, again])).data["x_grad.0.debug"][0]
    assert found["later_passes"] == [{"Max": 2.0}]


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_holes_are_filled_wherever_their_filler_stands(tmp_path, kept):
    fold = Fold(kept=kept)
    writer = JournalWriter(tmp_path / "j", fold.take)
    value = b'[{"type":"t","dtype":"d","shape":[2]\x1an1\x1a,"requires_grad":true\x1af2\x1a}]'
    writer.append(HEAD)
    writer.append(events.fill([(1, b',"Max":1\x1af3\x1a')]))
    writer.append(events.enter(A, None, "aw", (value, b"{}")))
    writer.append(events.fill([(3, b',"md5":"x"')]))
    (row,) = jsonio.loads(files(fold, writer.places())["dump.json"])["data"].values()
    (tensor,) = row["input_args"]
    why = "tensor file: the process ended before this was written"
    assert tensor == {
        "type": "t",
        "dtype": "d",
        "shape": [2],
        "Max": 1,
        "md5": "x",
        "requires_grad": True,
        "lost": why,
    }


def test_a_header_that_was_written_in_part_gets_its_rest_or_the_file_is_undone(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    writer = JournalWriter(tmp_path / "j", Fold().take)
    writer.append(HEAD)
    monkeypatch.undo()
    assert read_journal(tmp_path / "j").state == "whole"
    assert len(read_journal(tmp_path / "j").events) == 1

    calls = []

    def full(fd, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(fd, data[:3])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        JournalWriter(tmp_path / "k", Fold().take)
    assert not (tmp_path / "k").exists()
