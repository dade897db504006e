"""Dumps of what runs in graphs: a step around a block, and a reader for its records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mindspore_dumping import collected


class Dump:
    """One graph dump, or the step's own where no graph was dumped.

    data: dump.json's records; construct, report, stack: those files; after the block.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data: dict[str, Any] = {}
        self.construct: dict[str, Any] = {}
        self.report: dict[str, Any] = {}
        self.stack: dict[str, Any] = {}

    def read(self) -> None:
        """Read the files."""
        from probe_format.jsonio import loads

        for name in ("construct", "report", "stack"):
            setattr(self, name, loads((self.directory / f"{name}.json").read_bytes()))
        self.data = loads((self.directory / "dump.json").read_bytes())["data"]

    @property
    def unseen(self) -> dict[str, str]:
        """What could not be seen, and why."""
        return {item["what"]: item["why"] for item in self.report["not_seen"]}

    def array(self, tensor: dict[str, Any]) -> Any:
        """The file of a tensor object."""
        from probe_format.tensors import load_npy

        return load_npy(self.directory / "dump_tensor_data" / tensor["data_name"])


@contextmanager
def dumped(path: Path, model: Any, **options: Any) -> Iterator[Dump]:
    """Record the graphs of ``model`` that run inside the block."""
    dump = Dump(path)
    with collected(path, model, **{"level": "L0", "task": "tensor", **options}):
        yield dump
    places = (path / "dump" / part / "step0" / "rank" for part in ("graph", ".", "pynative"))
    dump.directory = next(place for place in places if place.is_dir())
    dump.read()
