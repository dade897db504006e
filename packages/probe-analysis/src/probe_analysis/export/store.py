"""Put whole files into a folder, or into any other store that fsspec knows."""

import os
from pathlib import Path
from typing import Any

from attrs import frozen

#: Stores of objects: a file is there when all of it is, and a rename is a copy. Elsewhere it is renamed into its place.
_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci"}


@frozen
class Store:
    """Give access to what is at an address: ``/data/tables``, ``s3://bucket/run``."""

    address: str

    def has(self, name: str) -> bool:
        """Return whether the store has a file. Raises what the store raises."""
        system, root = self._opened()
        return bool(system.exists(f"{root}/{name}"))

    def put(self, file: Path, name: str) -> None:
        """Put a file into the store, so that it is whole whenever it is seen. A store may raise any Exception.

        name: of the file in the store, with folders.
        """
        system, root = self._opened()
        kinds = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
        target = f"{root}/{name}"
        if kinds & _OBJECTS:
            system.put_file(str(file), target)
            return
        aside = f"{root}/.writing/{os.urandom(8).hex()}"
        for path in (aside, target):
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.put_file(str(file), aside)
        if "file" not in kinds and system.exists(target):  # the others rename over nothing
            system.rm_file(target)
        system.mv(aside, target)

    def _opened(self) -> tuple[Any, str]:
        """Return the file system, the same each time, and the folder in it."""
        import fsspec  # type: ignore[import-untyped]

        system, root = fsspec.url_to_fs(self.address)
        return system, root.rstrip("/")
