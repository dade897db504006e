"""Dumps of what runs in graphs: a step around a block, and a reader for its records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import probe_format
from probe_format.config import resolve
from probe_mindspore.cells import CellTable
from probe_mindspore.graph import GraphStep


class Dump:
    """One graph dump. data: dump.json's records, construct, report: those files; after the block."""

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
        from probe_format.arrays import load_npy

        return load_npy(self.directory / "dump_tensor_data" / tensor["data_name"])


@contextmanager
def dumped(path: Path, model: Any, **options: Any) -> Iterator[Dump]:
    """Record the graphs of ``model`` that run inside the block."""
    options = {"level": "L0", "task": "tensor", "dump_path": str(path), **options}
    directory = path / "step0" / "rank"
    step = GraphStep.begin(
        resolve(None, **options), directory, "probe-mindspore test", {"rank": None, "step": 0}
    )
    table = CellTable()
    table.add_model(model)
    dump = Dump(directory)
    step.resume(table)
    try:
        yield dump
    except BaseException:
        step.abandon()
        raise
    step.pause()
    step.end()
    dump.read()
    assert probe_format.open(path).steps
