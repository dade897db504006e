"""Counts under threads: exact, and never one half of a pair without the other."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from at_once import in_threads
from probe_format.journal import events
from probe_format.journal.frames import Count
from probe_format.write.coverage import Coverage, Tally
from probe_format.write.rank_writer import RankWriter

THREADS, TIMES = 8, 2000


@pytest.fixture(autouse=True)
def _switching_all_the_time() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_a_tally_is_exact_and_reading_it_does_not_count() -> None:
    tally, read = Tally(), [0]

    def work(_: int) -> None:
        for _ in range(TIMES):
            tally.add()

    in_threads(work, *range(THREADS), meanwhile=lambda: read.append(tally.value))
    assert tally.value == tally.value == THREADS * TIMES
    assert read == sorted(read)


def test_what_became_of_a_call_is_never_read_without_the_call() -> None:
    coverage = Coverage()
    torn: list[Any] = []

    def look() -> None:
        counts = coverage.json()["counts"]
        if sum(counts["seen"].values()) != sum(counts["recorded"].values()) + sum(
            counts["filtered"].values()
        ):
            torn.append(counts)

    def work(_: int) -> None:
        for _ in range(TIMES // 2):
            coverage.outcome("calls", "recorded")
            coverage.outcome("modules", "filtered", "scope or list")

    in_threads(work, *range(THREADS), meanwhile=look)
    assert not torn
    assert coverage.counts["seen"] == {"calls": THREADS * TIMES // 2, "modules": THREADS * TIMES // 2}
    assert coverage.counts["filtered"] == {"scope or list": THREADS * TIMES // 2}


def test_what_another_thread_counts_for_the_first_time_is_no_fault_as_counts_are_read() -> None:
    coverage = Coverage()

    class Other(Count):
        @property
        def n(self) -> int:
            coverage.written["new"].n += 1
            return 2

    coverage.written["old"] = Other.__new__(Other)
    assert coverage.json()["counts"]["recorded"] == {"old": 2}
    assert coverage.written["new"].n == 1


def test_the_last_counts_are_those_of_the_files(tmp_path: Path) -> None:
    """Events that come while the files are written: in the files and counted, or neither."""
    for round in range(10):
        writer = RankWriter(tmp_path / str(round), {"task": "statistics", "dump_data_dir": None})
        coverage, numbers = Coverage(written={"calls": Count()}), itertools.count()

        def work() -> None:
            for _ in range(50):
                name = f"Torch.relu.{next(numbers)}.forward"  # noqa: B023
                event = events.enter(name, None, "aw", (b"[]", b"{}"))
                writer.append(event, coverage.written["calls"])  # noqa: B023

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        said = writer.finish(final=True, last=lambda: events.tally(coverage.json()))  # noqa: B023
        for thread in threads:
            thread.join()  # too late for this step: neither an error nor a record
        assert said["counts"].get("recorded", {}).get("calls", 0) == said["records"]
        assert next(numbers) == THREADS * 50
        assert not (tmp_path / str(round) / "records.journal").exists()
