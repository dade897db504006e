"""Open Probe as a user does: the same for every framework, whose debugger is given as ``kind``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from documents import Json, records, write_config

__all__ = ["capture", "opened"]


@contextmanager
def opened(kind: type[Any], folder: Path, **keys: Any) -> Iterator[Any]:
    """A debugger that dumps to `folder`/dump, closed at the end so that the next test can have its own."""
    debugger = kind(str(write_config(folder, **keys)))
    with debugger:
        yield debugger


def capture(
    kind: type[Any],
    folder: Path,
    work: Callable[[], Any],
    model: Any = None,
    *,
    keep_open: bool = False,
    **keys: Any,
) -> dict[str, Json]:
    """Run `work` once inside start ... stop, step; the records by name."""
    with opened(kind, folder, **keys) as debugger:
        debugger.start(model) if model is not None else debugger.start()
        try:
            work()
        finally:
            debugger.stop()
        if not keep_open:
            debugger.step()
    return records(folder / "dump")
