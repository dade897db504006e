"""Hold what a dump would write (records, files, bytes), and put it into words."""

from collections.abc import Iterator

from attrs import frozen


def size_text(count: int) -> str:
    """Return bytes in the unit that fits, with three digits and powers of 1000: ``7.83 GB``."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{count} bytes" if unit == "bytes" else f"{_digits(size)} {unit}"
        size /= 1000
    return f"{_digits(size)} TB"


def _digits(size: float) -> str:
    return f"{size:#.3g}".rstrip(".")


@frozen(kw_only=True)
class DumpPlan:
    """What a dump with one configuration would write in each step, for each rank. All sizes are in bytes.

    level, task: of the configuration.
    records: how many records dump.json has.
    tensors: how many tensors are described in them.
    documents: how many documents there are (dump.json, stack.json, ...).
    document_bytes: the size of the documents.
    files: how many names of tensor files there are: one for each tensor that gets a file.
    written: how many of them are files of their own; the others are second names (hard links) of those. A dump has
        fewer where different tensors have equal bytes.
    file_bytes: the size of the tensor files.
    file_bytes_unshared: the size that they would have if each name were a file of its own.
    allocated: what documents and files take on a disk, in whole blocks.
    free: what is free where dump_path is; None where that is not known.
    steps: how many steps are on the disk at once; None where every step is dumped, and stays.
    ranks: how many ranks it names; None when every rank is dumped.
    largest: (kind of call, bytes) of the tensor files of the kinds that write most, counted without sharing.
    unmatched: (filter, entry, nearest names) of each entry of a filter that matches nothing.
    not_seen: (what, why) of what such a dump cannot see.
    problems: one sentence for each thing that would stop this dump or spoil it.
    notes: what to know about this plan.
    """

    level: str
    task: str
    records: int
    tensors: int
    documents: int
    document_bytes: int
    files: int
    written: int
    file_bytes: int
    file_bytes_unshared: int
    allocated: int
    free: int | None
    steps: int | None
    ranks: int | None
    largest: tuple[tuple[str, int], ...] = ()
    unmatched: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    not_seen: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the size of all that one step of one rank writes."""
        return self.document_bytes + self.file_bytes

    @property
    def bytes_unshared(self) -> int:
        """Return the same if each tensor were written to a file of its own."""
        return self.document_bytes + self.file_bytes_unshared

    @property
    def total(self) -> int | None:
        """Return what all steps and ranks take on a disk; None when the configuration names no steps.

        Where it names no ranks, this is for one.
        """
        return None if self.steps is None else self.allocated * self.steps * (self.ranks or 1)

    def __str__(self) -> str:
        """Return the plan as text: one sentence, a table, and what is wrong."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"One step of one rank at level {self.level}, task {self.task}, writes {size_text(self.bytes)}: "
            f"{self.records:,} records with {self.tensors:,} tensors."
        )
        yield ""
        yield _row("documents", self.documents, self.document_bytes)
        yield _row("tensor files", self.written, self.file_bytes)
        if self.files > self.written:
            second = self.files - self.written
            yield f"{'second names of them':22}{second:>12,}{'':12}  (tensors whose content was written before)"
            yield _row(
                "one file per tensor", self.files, self.file_bytes_unshared, "  (as msprobe writes them)"
            )
        if self.total is not None:
            many = f"{self.steps} step{'s' * (self.steps != 1)}"
            many += f", {self.ranks} rank{'s' * (self.ranks != 1)}" if self.ranks else ", each rank"
            yield f"{many:22}{'':12}{size_text(self.total):>12}  on disk"
        if self.free is not None:
            yield f"{'free at dump_path':22}{'':12}{size_text(self.free):>12}"
        if self.largest:
            yield ""
            yield "Most of the tensor files are of (each name counted):"
            for kind, size in self.largest:
                yield f"  {kind:32}{size_text(size):>12}"
        for title, lines in (
            ("In the way", self.problems),
            ("Not seen", tuple(f"{what}: {why}" for what, why in self.not_seen)),
            ("Notes", self.notes),
        ):
            if lines:
                yield ""
                yield f"{title}:"
                yield from (f"  {line}" for line in lines)


def _row(title: str, count: int, size: int, more: str = "") -> str:
    return f"{title:22}{count:>12,}{size_text(size):>12}{more}"
