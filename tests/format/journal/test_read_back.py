"""Events come back from the journal as they were written, however long they are and in whatever order."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_format import jsonio
from probe_format.journal.frames import MAGIC, JournalWriter

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([4000, 5000, 1 << 20, (1 << 20) - 30, 3 << 20]))


def written(folder, sizes):
    writer = JournalWriter(folder / "j")
    made = [jsonio.dumps({"k": "save", "n": i, "v": "x" * size}) for i, size in enumerate(sizes)]
    for event in made:
        writer.append(event)
    return writer, made


def all_of(reader, stop):
    found, at = [], len(MAGIC)
    while at < stop:
        places, some, after = reader.events(at, stop)
        assert some and after > at
        found, at = found + list(zip(places, some, strict=True)), after
    assert at == stop
    return found


@settings(max_examples=30)
@given(st.lists(SIZES, max_size=12), st.randoms(use_true_random=False))
def test_every_event_comes_back_once_and_by_its_place(tmp_path_factory, sizes, random):
    writer, made = written(tmp_path_factory.mktemp("j"), sizes)
    found = all_of(writer.read_back(), writer.size)
    assert [event for _, event in found] == made
    reader = writer.read_back()
    shuffled = random.sample(found, len(found))
    for place, event in [*found, *shuffled, *reversed(found)]:
        assert reader.event(place) == event
    writer.close()


def test_it_goes_on_where_it_ended(tmp_path):
    writer, made = written(tmp_path, [1, 2])
    middle = writer.size
    writer.append(jsonio.dumps({"k": "save", "n": 2}))
    assert [e for _, e in all_of(writer.read_back(), middle)] == made
    (place,), (event,), after = writer.read_back().events(middle, writer.size)
    assert (place, after) == (middle, writer.size) and b'"n":2' in event


@pytest.mark.parametrize("how", ["byte", "length", "cut"])
def test_what_another_process_did_to_the_file_is_noticed(tmp_path, how):
    writer, _ = written(tmp_path, [100, 100])
    size = writer.size
    fd = os.open(writer.path, os.O_WRONLY)
    if how == "cut":
        os.ftruncate(fd, size - 1)
    else:
        os.pwrite(fd, b"\xff", len(MAGIC) + (50 if how == "byte" else 2))
    os.close(fd)
    with pytest.raises(OSError, match="does not hold what was written"):
        all_of(writer.read_back(), size)
