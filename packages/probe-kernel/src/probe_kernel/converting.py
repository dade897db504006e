"""Many files at once: the work of ``probe kernel convert``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TextIO

from probe_format.errors import UsageError

from .conversion import Conversion, Outcome, convert_file
from .mapping import MAPPING

__all__ = ["Progress", "convert_all"]


def convert_all(
    files: Iterable[Path], source: Path, out: Path, how: Conversion, workers: int | None = None
) -> Iterator[Outcome]:
    """Convert ``files`` (at or below ``source``) into ``out``, in the same folders as there; outcomes as they come.

    workers: threads, as many as there are cores unless told: reading, writing and numpy's copies let others run.
    Only a few files a worker are under way at a time, so that memory is bounded by the largest of them.
    Raises UsageError when two files would get the same name, OSError when ``out`` cannot be made.
    """
    workers = workers or len(os.sched_getaffinity(0))
    root = source if source.is_dir() else source.parent
    if out.resolve() == root.resolve():
        raise UsageError("The converted files want a folder of their own: give another -o.")
    mappings: dict[Path, list[tuple[str, str]]] = {}
    with ThreadPoolExecutor(workers, "probe-convert") as pool:
        under_way: set[Future[Outcome]] = set()
        for path in files:
            folder = out / path.parent.relative_to(root)
            folder.mkdir(parents=True, exist_ok=True)
            under_way.add(pool.submit(convert_file, path, folder, how))
            if len(under_way) >= 2 * workers:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield _noted(future.result(), mappings)
        for future in wait(under_way).done:
            yield _noted(future.result(), mappings)
    for folder, rows in mappings.items():
        with (folder / MAPPING).open("a") as file:
            file.writelines(f"{new},{old}\n" for new, old in rows)


def _noted(outcome: Outcome, mappings: dict[Path, list[tuple[str, str]]]) -> Outcome:
    if outcome.renamed and outcome.written:
        mappings.setdefault(outcome.written[0].parent, []).extend(outcome.renamed)
    return outcome


class Progress:
    """A bar on a terminal; a line every few seconds where nobody watches one."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total, self._stream = total, stream or sys.stderr
        self._live = self._stream.isatty()
        self._done = self._bad = 0
        self._last = time.monotonic()

    def step(self, outcome: Outcome) -> None:
        """One more file is done."""
        self._done += 1
        self._bad += bool(outcome.faults)
        now = time.monotonic()
        if now - self._last < (0.1 if self._live else 5.0) and self._done < self._total:
            return
        self._last = now
        share = self._done / max(self._total, 1)
        bad = f", {self._bad} with faults" if self._bad else ""
        if self._live:
            bar = "#" * round(30 * share)
            self._stream.write(f"\r[{bar:<30}] {self._done}/{self._total} files{bad}")
            if self._done == self._total:
                self._stream.write("\n")
        else:
            self._stream.write(f"{self._done}/{self._total} files{bad}\n")
        self._stream.flush()
