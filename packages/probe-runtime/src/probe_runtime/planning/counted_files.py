"""Count the files that a dump would write, and their bytes, instead of writing them."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from attrs import define, field
from probe_format.tensors import byte_count

from probe_runtime.describe.equal_files import hash_of
from probe_runtime.watch.budget import in_blocks

#: The class of a module's record, or the name of a function's, at the beginning of a file name.
_KIND = re.compile(
    r"(?:Module|Cell)\..*?\.(?P<module>\w+)\.(?:(?:forward|backward)\.\d+|(?:parameters|optimizer)_grad)\."
    r"|(?P<function>\w+\.\w+)\.\d+\.(?:forward|backward)\."
)


@define
class CountedFiles:
    """Stand in for a disk: take files and second names of them, and keep their sizes.

    sizes: path of each name -> the size of its file in bytes.
    second: the paths that are second names.
    """

    sizes: dict[str, int] = field(factory=dict)
    second: set[str] = field(factory=set)
    _first: dict[tuple[str, bytes], str] = field(factory=dict)

    def write(self, name: str, parts: Sequence[bytes | memoryview], folder: object) -> int:
        """Count a file of these pieces in ``folder``; return 0 for its checksum. Only their sizes matter."""
        path = f"{folder}/{name}"
        self.sizes[path] = byte_count(parts)
        self.second.discard(path)
        return 0

    def once(
        self, name: str, parts: Sequence[bytes | memoryview], folder: object, content: bytes = b""
    ) -> int:
        """Count a file, or a second name of the first in ``folder`` with this content; return 0 for its checksum.

        content: what tells it from other contents, where the pieces hold no numbers; their hash by default.
        """
        path = f"{folder}/{name}"
        first = self._first.setdefault((str(folder), content or hash_of(parts)), path)
        if first == path:
            return self.write(name, parts, folder)
        self.sizes[path] = self.sizes[first]
        self.second.add(path)
        return 0

    @property
    def names(self) -> int:
        """Return how many names of files there are."""
        return len(self.sizes)

    @property
    def written(self) -> int:
        """Return how many files there are."""
        return len(self.sizes) - len(self.second)

    @property
    def bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(size for path, size in self.sizes.items() if path not in self.second)

    @property
    def bytes_of_all_names(self) -> int:
        """Return the bytes that the files would have if each name were a file of its own."""
        return sum(self.sizes.values())

    def largest(self) -> list[tuple[str, int]]:
        """Return (kind of call, bytes) of the five kinds with the largest files, each name counted."""
        found: Counter[str] = Counter()
        for path, size in self.sizes.items():
            at = _KIND.match(PurePath(path).name)
            kind = "other" if at is None else at["function"] or f"{at['module']} (module)"
            found[kind] += size
        return found.most_common(5)

    def allocated(self, block: int) -> int:
        """Return the bytes that the files take on a disk. block: each file takes a multiple of so many bytes."""
        return sum(in_blocks(size, block) for path, size in self.sizes.items() if path not in self.second)
