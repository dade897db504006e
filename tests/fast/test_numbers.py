"""Numbers of the library against exact arithmetic: every kind, length, place, processor, number of threads."""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from native_library import SOURCE, build, every_way, module_at
from probe_fast import KINDS, Measured, four, library, numbers
from vectors_of_kinds import TABLE, Array, drawn, of, truth

TINY = 1e-322


def asked(a: Array, kind: str, of: ModuleType = library, **more: Any) -> Measured | None:
    table = TABLE.ctypes.data if kind == "codes" else None
    return of.numbers(  # type: ignore[no-any-return]
        a.ctypes.data, a.size, kind, table=table, zero_count=True, sketch=True, **more
    )


def check(a: Array, kind: str, of: ModuleType = library) -> None:
    """Hold the numbers of a library, in every way that it has, to what is true; they are the same to the last bit."""
    of_ways = [asked(a, kind, of) for _ in every_way(Path(str(of.__file__)).with_name("numbers.so"))]
    found, right = of_ways[-1], truth(a, kind)
    assert len(set(map(repr, of_ways))) == 1, (kind, a)
    if right.mean is None and not any(right.counts[:3]):
        assert found is None and kind == "float64", (kind, a)
        return
    assert found is not None, (kind, a)
    assert (found.nan, found.above, found.below, found.zeros) == right.counts, (kind, a)
    ends = (found.max, found.min)
    if kind in ("int64", "uint64"):
        ends = (found.top, found.bottom) if kind[0] == "i" else (found.top % 2**64, found.bottom % 2**64)
    assert ends == (right.max, right.min), (kind, a)
    if right.mean is not None and right.norm is not None:
        assert abs(found.mean - right.mean) <= 1e-13 * right.size + TINY, (kind, a)
        assert abs(found.norm - right.norm) <= 1e-13 * right.norm + TINY, (kind, a)
        scale = max(map(abs, right.sketch or [0.0]))
        for mine, theirs in zip(found.sketch, right.sketch or [], strict=True) if kind != "bool" else ():
            assert abs(mine - theirs) <= 2e-7 * abs(theirs) + 1e-13 * (scale + right.size) + TINY
    if kind != "codes":
        assert of.four(a.ctypes.data, a.size, kind) == (None if found.broken else found[:4])


def placed(a: Array, offset: int) -> Array:
    """The same elements at an address that is so many bytes beyond a cache line."""
    room = np.zeros(a.nbytes + 128, np.uint8)
    begin = -room.ctypes.data % 64 + offset
    room[begin : begin + a.nbytes] = a.view(np.uint8)
    return room[begin : begin + a.nbytes].view(a.dtype)


@pytest.fixture(scope="session")
def small_blocks(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The library with blocks of 64 elements in pieces of 32, in all else as it is."""
    folder = tmp_path_factory.mktemp("small")
    text = SOURCE.read_text()
    for line, other in (("BLOCK (1 << 16)", "BLOCK 64"), ("PIECE 1024", "PIECE 32")):
        assert f"#define {line}" in text
        text = text.replace(f"#define {line}", f"#define {other}")
    (folder / "numbers.c").write_text(text)
    assert build.compiled(folder / "numbers.c", folder / "numbers.so") == ""
    return module_at(Path(shutil.copy(SOURCE.with_name("library.py"), folder)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_length_from_one_element_to_three_blocks(kind: str, small_blocks: ModuleType) -> None:
    assert small_blocks.WAY == library.WAY
    for count in range(1, 3 * 64 + 1):
        for a in drawn(kind, count, 0):
            check(placed(a, count * a.itemsize % 64), kind, small_blocks)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_about_the_ends_of_pieces_and_blocks(kind: str) -> None:
    for count in (1023, 1025, 65_535, 65_537, 3 * 65_536 + 5):
        for a in islice(drawn(kind, count, 1), 4):
            check(a, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_place_in_memory(kind: str) -> None:
    for a in drawn(kind, 77, 2):
        first = asked(placed(a, 0), kind)
        assert all(repr(asked(placed(a, offset), kind)) == repr(first) for offset in range(64))


def test_nothing_to_read_is_left_to_the_reference() -> None:
    a = np.zeros(4, np.float32)
    assert numbers(a.ctypes.data, 0, "float32") is None and four(a.ctypes.data, 0, "float32") is None
    assert numbers(a.ctypes.data, 4, "codes") is None and four(a.ctypes.data, 4, "codes") is None


@pytest.mark.parametrize("kind", KINDS)
def test_neither_threads_nor_the_processor_change_a_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MANY", 1)
    for a in islice(drawn(kind, 5 * 65_536 + 77, 3), 3):
        found = {
            repr(asked(a, kind, threads=partial(int, threads)))
            for _ in every_way()
            for threads in (1, 2, 3, 64, 1000)
        }
        assert len(found) == 1


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_large_offset_cancels_nothing(kind: str) -> None:
    """The mean of 300,000 numbers about 10,000 whose deviations are known, and of as many that cancel out."""
    steps = np.tile([-0.25, 0.25, 0.5, -0.5], 75_000)
    a = of(10_000 + steps * 256, kind)
    check(a, kind)
    exact = asked(of(np.tile([3e4, -3e4, 1.0], 100_000), kind), kind)
    assert exact is not None and abs(exact.mean - 1 / 3) < 1e-10


def test_after_a_fork_it_computes_as_before_while_threads_compute() -> None:
    a = np.random.default_rng(4).standard_normal(1 << 21, np.float32)
    right, stop = repr(asked(a, "float32", threads=lambda: 3)), threading.Event()

    def work() -> None:
        while not stop.is_set():
            asked(a, "float32", threads=lambda: 3)
            four(a.ctypes.data, 100, "float32")

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(20):
            if not (child := os.fork()):
                signal.alarm(60)
                os._exit(repr(asked(a, "float32", threads=lambda: 3)) != right)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_many_threads_at_once_have_each_their_own_answer() -> None:
    arrays = [np.full(50 + i, float(i), np.float32) for i in range(8)]
    wrong: list[Any] = []

    def work(i: int) -> None:
        for _ in range(20_000):
            found = four(arrays[i].ctypes.data, arrays[i].size, "float32")
            if found != (i, i, i, pytest.approx(i * math.sqrt(50 + i))):
                wrong.append((i, found))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
