"""Tensor files behind the run: order, bounds, failures, and an end."""

import gc
import os
import threading
import weakref

import pytest
from probe_runtime.describe.file_queue import FileQueue

LONG = 30  # seconds until a test that waits gives up


class Gate:
    """A file that is written when the test says so."""

    def __init__(self):
        self.asked, self.open, self.written = threading.Event(), threading.Event(), False

    def __call__(self):
        self.asked.set()
        assert self.open.wait(LONG)
        self.written = True


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_files_are_written_in_order():
    queue, written = FileQueue(1000), []
    for at in range(50):
        queue.put(lambda at=at: written.append(at), 10)
    queue.flush()
    assert written == list(range(50))
    queue.close()


def test_put_waits_while_too_much_is_queued():
    queue = FileQueue(100)
    gates = [Gate() for _ in range(3)]
    queue.put(gates[0], 60)
    assert gates[0].asked.wait(LONG)
    queue.put(gates[1], 40)  # just fits
    entered = threading.Event()

    def more():
        queue.put(gates[2], 1)
        entered.set()

    thread = in_thread(more)
    assert not entered.wait(0.1)
    gates[0].open.set()
    assert entered.wait(LONG)
    for gate in gates:
        gate.open.set()
    thread.join(LONG)
    queue.close()
    assert all(gate.written for gate in gates)


def test_a_file_over_the_bound_goes_alone():
    queue, written = FileQueue(10), []
    for at in range(3):
        queue.put(lambda at=at: written.append(at), 1000)
    queue.close()
    assert written == [0, 1, 2]


def test_what_is_held_is_let_go():
    """The bound is of memory: after a file is written nothing in the queue keeps its content."""

    class Content:
        def __call__(self):
            pass

    queue, content = FileQueue(1000), Content()
    seen = weakref.ref(content)
    queue.put(content, 1)
    del content
    queue.flush()
    gc.collect()
    assert seen() is None
    queue.close()


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_a_file_that_raises_does_not_stop_the_queue(error):
    def bad():
        raise error("no content")

    queue, written = FileQueue(10), []
    for at in range(3):
        queue.put(bad, 10)
        queue.put(lambda at=at: written.append(at), 10)
    finished = in_thread(queue.close)
    finished.join(LONG)
    assert not finished.is_alive()
    assert written == [0, 1, 2]


def test_flush_waits_for_the_file_in_hand():
    queue, gate = FileQueue(1000), Gate()
    queue.put(gate, 1)
    assert gate.asked.wait(LONG)
    flushed = in_thread(queue.flush)
    flushed.join(0.1)
    assert flushed.is_alive()
    gate.open.set()
    flushed.join(LONG)
    assert gate.written
    queue.flush()
    queue.close()


def test_close_ends_the_thread_and_later_files_are_refused():
    before = set(threading.enumerate())
    queue = FileQueue(1000)
    queue.put(lambda: None, 1)
    queue.close()
    queue.close()
    assert not [t for t in threading.enumerate() if t.name == "probe-files" and t not in before]
    with pytest.raises(RuntimeError, match="closed"):
        queue.put(lambda: None, 1)


def test_many_threads_may_put():
    queue, written = FileQueue(20), []

    def run(n):
        for i in range(20):
            queue.put(lambda i=i: written.append(n * 100 + i), 9)

    threads = [in_thread(lambda n=n: run(n)) for n in range(4)]
    for thread in threads:
        thread.join(LONG)
    queue.close()
    assert len(written) == 80
    for n in range(4):
        assert [w for w in written if w // 100 == n] == [n * 100 + i for i in range(20)]


def test_a_forked_copy_has_no_thread_and_does_not_wait_for_it(monkeypatch):
    queue, gate = FileQueue(1000), Gate()
    queue.put(gate, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        child = in_thread(lambda: (queue.flush(), queue.close()))
        child.join(LONG)
        assert not child.is_alive()
    gate.open.set()
    queue.close()
