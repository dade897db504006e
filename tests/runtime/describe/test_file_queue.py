"""Tensor files behind the run: order, bounds, failures, and an end."""

import errno
import os
import threading

import pytest
from probe_runtime.describe.file_queue import FileQueue, link_or_copy

LONG = 30  # seconds until a test that waits gives up


class Gate:
    """File contents that are ready when the test says so."""

    def __init__(self, content=b"x"):
        self.content = content
        self.asked, self.open = threading.Event(), threading.Event()

    def __call__(self):
        self.asked.set()
        assert self.open.wait(LONG)
        return [self.content]


class Told:
    """What the queue reports, in order."""

    def __init__(self):
        self.all = []

    def done(self, refs):
        self.all.append(refs)

    def failed(self, path, error):
        self.all.append((path.name, error))


@pytest.fixture
def told():
    return Told()


def queue_of(told, bound=1000):
    return FileQueue(bound, told.done, told.failed)


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_files_are_written_in_order_and_reported_when_they_are_whole(tmp_path, told):
    def done(refs):
        (ref,) = refs
        assert (tmp_path / str(ref)).read_bytes() == b"%d" % ref * 3
        told.all.append(ref)

    queue = FileQueue(1000, done, told.failed)
    for ref in range(50):
        queue.put(ref, tmp_path / str(ref), lambda ref=ref: [b"%d" % ref, b"%d" % ref * 2], 10)
    queue.flush()
    assert told.all == list(range(50))
    queue.close()


def test_put_waits_while_too_much_is_queued(tmp_path, told):
    queue = queue_of(told, 100)
    gates = [Gate() for _ in range(4)]
    queue.put(0, tmp_path / "0", gates[0], 60)
    assert gates[0].asked.wait(LONG)
    queue.put(1, tmp_path / "1", gates[1], 40)  # just fits
    entered = threading.Event()

    def more():
        queue.put(2, tmp_path / "2", gates[2], 1)
        entered.set()

    thread = in_thread(more)
    assert not entered.wait(0.1)
    gates[0].open.set()
    assert entered.wait(LONG)
    for gate in gates:
        gate.open.set()
    thread.join(LONG)
    queue.close()
    assert told.all == [[0], [1], [2]]


def test_a_file_over_the_bound_goes_alone(tmp_path, told):
    queue = queue_of(told, 10)
    for ref in range(3):
        queue.put(ref, tmp_path / str(ref), lambda: [b"x" * 1000], 1000)
    queue.close()
    assert told.all == [[0], [1], [2]]


def test_what_is_held_is_let_go(tmp_path, told):
    """The bound is of memory: after a file is written nothing in the queue keeps its content."""
    import gc
    import weakref

    class Content:
        def __call__(self):
            return [b"x"]

    queue = queue_of(told)
    content = Content()
    seen = weakref.ref(content)
    queue.put(0, tmp_path / "0", content, 1)
    del content
    queue.flush()
    gc.collect()
    assert seen() is None
    queue.close()


def test_a_link_gives_a_second_name_to_what_was_queued_before(tmp_path, told):
    queue = queue_of(told)
    gate = Gate(b"content")
    queue.put(1, tmp_path / "a", gate, 7)
    queue.link(2, tmp_path / "b", tmp_path / "a")
    gate.open.set()
    queue.close()
    assert told.all == [[1], [2]]
    assert (tmp_path / "b").read_bytes() == b"content"
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino


def test_failures_are_reported_by_file_and_the_rest_goes_on(tmp_path, told):
    def bad():
        raise ValueError("no content")

    queue = queue_of(told)
    queue.put(1, tmp_path / "none" / "a", lambda: [b"x"], 5)
    queue.put(2, tmp_path / "b", bad, 5)
    queue.link(3, tmp_path / "c", tmp_path / "b")
    queue.put(4, tmp_path / "d", lambda: [b"x"], 5)
    queue.close()
    names = [item[0] if isinstance(item, tuple) else item for item in told.all]
    assert names == ["a", "b", "c", [4]]
    assert [type(item[1]) for item in told.all[:3]] == [FileNotFoundError, ValueError, FileNotFoundError]
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("which", ["done", "failed", "both"])
def test_a_report_that_raises_does_not_stop_the_queue(tmp_path, told, which):
    def bad(*args):
        raise RuntimeError("nobody listens")

    queue = FileQueue(10, bad if which != "failed" else told.done, bad if which != "done" else told.failed)
    for ref in range(3):
        queue.put(ref, tmp_path / ("x/" * (which != "done")) / str(ref), lambda: [b"x"], 10)
    finished = in_thread(queue.close)
    finished.join(LONG)
    assert not finished.is_alive()


def test_flush_waits_for_the_file_in_hand(tmp_path, told):
    queue = queue_of(told)
    gate = Gate()
    queue.put(1, tmp_path / "a", gate, 1)
    assert gate.asked.wait(LONG)
    flushed = in_thread(queue.flush)
    flushed.join(0.1)
    assert flushed.is_alive()
    gate.open.set()
    flushed.join(LONG)
    assert told.all == [[1]]
    queue.flush()
    queue.close()


def test_close_ends_the_thread_and_later_files_are_refused(tmp_path, told):
    before = set(threading.enumerate())
    queue = queue_of(told)
    queue.put(1, tmp_path / "a", lambda: [b"x"], 1)
    queue.close()
    queue.close()
    assert told.all == [[1]]
    assert not [t for t in threading.enumerate() if t.name == "probe-files" and t not in before]
    with pytest.raises(RuntimeError, match="closed"):
        queue.put(2, tmp_path / "b", lambda: [b"x"], 1)


def test_many_threads_may_put(tmp_path, told):
    queue = queue_of(told, 20)

    def run(n):
        for i in range(20):
            queue.put(n * 100 + i, tmp_path / f"{n}.{i}", lambda: [b"x" * 9], 9)

    threads = [in_thread(lambda n=n: run(n)) for n in range(4)]
    for thread in threads:
        thread.join(LONG)
    queue.close()
    refs = [ref for (ref,) in told.all]
    assert len(refs) == 80
    for n in range(4):
        assert [r for r in refs if r // 100 == n] == [n * 100 + i for i in range(20)]


def test_a_forked_copy_has_no_thread_and_does_not_wait_for_it(tmp_path, told, monkeypatch):
    queue = queue_of(told)
    gate = Gate()
    queue.put(1, tmp_path / "a", gate, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        child = in_thread(lambda: (queue.flush(), queue.close()))
        child.join(LONG)
        assert not child.is_alive()
    gate.open.set()
    queue.close()


def test_linking_replaces_and_copies_where_there_are_no_links(tmp_path, monkeypatch):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"new")
    link_or_copy(a, a)
    assert a.read_bytes() == b"new"
    b.write_bytes(b"old")
    link_or_copy(a, b)
    assert b.read_bytes() == b"new"

    def no_links(source, target):
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "exists")
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    for target in (tmp_path / "c", b):
        link_or_copy(a, target)
        assert target.read_bytes() == b"new"
        assert target.stat().st_ino != a.stat().st_ino
    with pytest.raises(FileNotFoundError):
        link_or_copy(tmp_path / "none", tmp_path / "d")
    assert not (tmp_path / "d").exists()
