"""Convert many bin files with several threads."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from probe_format.errors import UsageError

from probe_kernel.output_folder import folder_in

from .convert_file import Conversion, ConvertOutcome, convert_file
from .destination import Destination

# Each worker holds a tensor and up to two copies of it, so their number bounds the memory.
_MOST_WORKERS = 8


def convert_all(
    files: Iterable[tuple[Path, str]], source: Path, out: Path, how: Conversion, workers: int | None = None
) -> Iterator[ConvertOutcome]:
    """Convert ``files`` to ``out``, in the same folders as below ``source``; yield the outcomes as they are ready.

    files: as `bin_files` returns them.
    workers: threads; by default one for each core, at most 8. Reading, writing and numpy's copies let others run.

    Each worker has two files at most in its queue, so memory is bounded by the largest files. A conversion that is
    stopped early (Ctrl-C) leaves whole files, and their lines in mapping.csv.

    Raises UsageError when ``out`` is the folder of ``source``, or a folder in it is a link; OSError when it cannot be
    made.
    """
    workers = workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
    root = source if source.is_dir() else source.parent
    if out.resolve() == root.resolve():
        raise UsageError("The converted files want a folder of their own: give another -o.")
    destination = Destination()
    with ThreadPoolExecutor(workers, "probe-convert") as pool:
        under_way: set[Future[ConvertOutcome]] = set()
        try:
            for path, name in files:
                folder = folder_in(out, path.parent.relative_to(root))
                under_way.add(pool.submit(convert_file, path, folder, how, name, destination))
                if len(under_way) >= 2 * workers:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in wait(under_way).done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # files already being converted are finished
            raise
