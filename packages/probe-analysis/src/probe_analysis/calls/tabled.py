"""Read exported tables (spec/export.md) as the ranks of a dump: each record is made of its rows in the tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from attrs import frozen
from probe_format import Dump, Rank, Step
from probe_format.errors import DamagedError, ProbeError, refuse_other_version
from probe_format.jsonio import finite, loads
from probe_format.read import Lost
from probe_format.schema import Construct, Document, Report, Stack, parse_report, tensors
from probe_format.statistics import COUNTS, KEYS, WHOLE

#: The columns that say what a tensor is, without its numbers and texts.
_FORM = (
    "record", "slot_order", "slot", "type", "original_dtype", "shape", "requires_grad", "device_mesh", "placements",
    "global_shape", "layout", "shared_with", "unsupported", "lost", "extra", "recompute", "backward_pass",
    *(key.lower() for key in KEYS if key not in WHOLE),
)  # fmt: skip
_NUMBERS = tuple(key.lower() for key in WHOLE)
_TEXTS = {"checksum": "md5", "data_name": "data_name", "data_crc32": "data_crc32"}
#: Column -> the key of a tensor object that it is for, where that may not be its name.
KEY_OF = {"original_dtype": "dtype", **_TEXTS, **{key.lower(): key for key in KEYS}}
_JSON = ("device_mesh", "layout")
#: The scalars of a record that have a column of their own -> the type that they have there.
MARKS: dict[str, type] = {"raised": str, "label": str}
MARKS |= dict.fromkeys(("incomplete", "in_backward", "partial"), bool)
#: The columns of records, tensors and arguments that are the same on ranks that make the same calls.
_SAME = ("record", *MARKS, "error", "extra"), _FORM, ("record", "slot")
_PLACE = re.compile(r"step=([^/]+)/rank=(\d+)/(?:(graph|pynative)-)?([^/]+)\.parquet$")


def opened(path: Path) -> Dump | None:
    """Return the ranks of the exported tables in a folder as a dump; None where it has no such tables."""
    steps: dict[tuple[str, int], list[Rank]] = {}
    root = path.absolute()
    for file in (path / "runs").glob("step=*/rank=*/*.parquet"):
        if found := _PLACE.search(file.as_posix()):
            step = int(found[1]) if found[1].isdigit() else None
            number = int(found[2]) if found[4].startswith("rank") and found[4] != "rank" else None
            where = path / (found[3] or "") / f"step{'' if step is None else step}" / found[4]
            mode: Any = found[3]
            rank = TabledRank(where, number, step, None, mode, root, "/".join(file.parts[-3:]))
            steps.setdefault((found[3] or "", -1 if step is None else step), []).append(rank)
    if not steps:
        return None
    every = [
        Step(ranks[0].path.parent, ranks[0].step, tuple(sorted(ranks, key=_in_order)), ranks[0].mode)
        for _, ranks in sorted(steps.items())
    ]
    return Dump(path, tuple(every))


def _in_order(rank: Rank) -> tuple[int, str]:
    return -1 if rank.number is None else rank.number, rank.path.name


@frozen(slots=False)
class TabledRank(Rank):
    """Give access to one rank of one step in exported tables.

    root: the folder of the tables. part: the path of the rank's file within the folder of each table.
    """

    root: Path = Path()
    part: str = ""

    def table(self, name: str, *own: str, same: Sequence[str] = ()) -> tuple[Any, AlikeColumns]:
        """Return the columns ``own`` of one of its tables, and the columns ``same``, which many ranks have alike.

        The latter are read once for ranks whose bytes are equal. Raises DamagedError when the file cannot be read,
        FormatError when it is of another major version.
        """
        try:
            from pyarrow.lib import ArrowException, memory_map
            from pyarrow.parquet import ParquetFile
        except ImportError as error:
            why = f"Parquet is read by pyarrow, which cannot be imported here ({error})."
            raise ProbeError(f"{why} Install it with: pip install 'probe-analysis[export]'.") from error
        file = self.root / name / self.part
        try:
            with memory_map(os.fsencode(file)) as raw, ParquetFile(raw, pre_buffer=False) as opened:
                version = (opened.metadata.metadata or {}).get(b"probe_export_version", b"")
                refuse_other_version(version.decode("utf-8", "replace"), file)
                places = _places(opened)
                missing = [each for each in (*own, *same) if each not in places]
                if not missing:
                    read = opened.read(own, use_threads=False) if own else None
                    return read, _alike(opened, raw, same, [n for each in same for n in places[each]])
        except (ArrowException, OSError, ValueError) as error:
            raise DamagedError(f"{file} cannot be read: {str(error).rstrip('.')}.") from error
        what = f"has no column {', '.join(missing)}, as a table of probe export has"
        raise DamagedError(f"{file} {what}. Export the rank again.")

    @cached_property
    def _run(self) -> Mapping[str, Any]:
        rows = self.table("runs", "source", "error", "header", "report")[0].to_pylist()
        if len(rows) != 1 or rows[0]["header"] is None:
            why = (rows or [{}])[0].get("error") or "no run"
            raise DamagedError(f"{self.root / 'runs' / self.part}: {why}.")
        found: Mapping[str, Any] = rows[0]
        return found

    @cached_property
    def header(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = loads(self._run["header"].encode())
        return found

    @cached_property
    def report(self) -> Report | None:
        text = self._run["report"]
        return None if text is None else parse_report(text.encode(), f"the report of {self.label}")

    @cached_property
    def source(self) -> Literal["files", "journal"]:
        return "journal" if self._run["source"] == "journal" else "files"

    @property
    def journal(self) -> None:
        return None

    @cached_property
    def is_empty(self) -> bool:
        ended = self.source == "files" and self.header  # a step in which nothing was called
        return not self.documents[0].records and not ended

    @cached_property
    def lost(self) -> Lost:
        tables = self.documents[0].records
        if not self.is_empty and isinstance(tables, Tables):
            lost, types = tables.tensors[1].table["lost"], tables.arguments[1].table["type"]
            if lost.null_count == len(lost) and "lost" not in types.to_pylist():
                return Lost({})
        return super().lost

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        return (Document(self.header, Tables(self), str(self.root / "tensors" / self.part)),)

    @cached_property
    def construct(self) -> Construct:
        rows = self.table("records", "record", "modules")[0]
        parents: dict[str, str | None] = {}
        for name, modules in zip(rows["record"].to_pylist(), rows["modules"].to_pylist(), strict=True):
            chain = [name, *(modules or ()), None]
            parents |= {below: above for below, above in pairwise(chain) if below not in parents}
        return Construct(parents)

    @cached_property
    def stack(self) -> Stack:
        rows = self.table("records", "record", "stack")[0]
        pairs = zip(rows["record"].to_pylist(), rows["stack"].to_pylist(), strict=True)
        return Stack(tuple(((name,), tuple(text.split("\n"))) for name, text in pairs if text))


@frozen(slots=False, eq=False)
class AlikeColumns:
    """Hold columns that many ranks have alike. schema: of their file, as Parquet has it."""

    table: Any
    schema: Any

    @cached_property
    def names(self) -> list[str]:
        """Return the record of each row."""
        found: list[str] = self.table["record"].to_pylist()
        return found

    @cached_property
    def plain(self) -> Any:
        """Return which tensors have no text, and a dtype of floats."""
        dtypes = self.table["original_dtype"].to_pylist()
        floats = {dtype: "float" in dtype.lower() or "complex" in dtype for dtype in {*dtypes}}
        return np.fromiter((floats[dtype] for dtype in dtypes), bool, len(dtypes)) & self.bare

    @cached_property
    def bare(self) -> Any:
        """Return which tensors have no text."""
        return np.all([self.table[name].is_null().to_pylist() for name in _TEXTS], axis=0)


#: What ranks that are read one after the other have alike, up to `_MOST` of each: AlikeColumns by their bytes, and
#: for each schema the name of a column -> its places.
_kept: dict[object, AlikeColumns] = {}
_schemas: list[tuple[Any, Mapping[str, Sequence[int]]]] = []
_MOST = 8


def _places(opened: Any) -> Mapping[str, Sequence[int]]:
    """Return the name of each column of a file -> its places among the chunks of a row group.

    They are kept for files of the same schema, as to make a schema takes as long as to read some columns.
    """
    for schema, places in _schemas:
        if schema.equals(opened.schema):
            return places
    found = dict[str, list[int]]()
    for n in range(opened.metadata.num_columns):
        found.setdefault(opened.schema.column(n).path.split(".")[0], []).append(n)
    if len(_schemas) >= _MOST:
        _schemas.clear()
    _schemas.append((opened.schema, found))
    return found


def _alike(opened: Any, raw: Any, names: Sequence[str], places: Sequence[int]) -> AlikeColumns:
    """Return columns of a file; those of an earlier file where the bytes are equal. raw: the file's bytes."""
    groups = map(opened.metadata.row_group, range(opened.num_row_groups))
    every = [group.column(n) for group in groups for n in places]
    spans = [(x.dictionary_page_offset or x.data_page_offset, x.total_compressed_size) for x in every]
    told = *(x.compression for x in every), *(size for _, size in spans), *_bytes_of(raw, spans)
    kept = _kept.get(key := (names, told))
    if kept is None or not kept.schema.equals(opened.schema):
        kept = AlikeColumns(opened.read(names, use_threads=False), opened.schema)
        if len(_kept) >= _MOST:
            _kept.clear()
        _kept[key] = kept
    return kept


def _bytes_of(raw: Any, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the bytes of a file in some spans, adjoining ones in one piece. spans: (begin, size) of each."""
    begin = end = 0
    for at, size in (*sorted(spans), (-1, 0)):
        if at != end:
            yield raw.read_at(end - begin, begin)
            begin = at
        end = at + size


@frozen(slots=False, eq=False, repr=False)
class Tables(Mapping[str, Any]):
    """Map names to the records of one rank, each made of its rows on access. rank: whose they are."""

    rank: TabledRank

    @cached_property
    def records(self) -> AlikeColumns:
        return self.rank.table("records", same=_SAME[0])[1]

    @cached_property
    def tensors(self) -> tuple[Any, AlikeColumns]:
        return self.rank.table("tensors", *_NUMBERS, same=(*_FORM, *_TEXTS))

    @cached_property
    def arguments(self) -> tuple[Any, AlikeColumns]:
        return self.rank.table("arguments", "json", same=("record", "slot_order", "slot", "type"))

    def is_like(self, other: Tables) -> bool:
        """Return whether other tables are the same but for numbers, texts and arguments."""
        pairs = zip(*((x.records, x.tensors[1], x.arguments[1]) for x in (self, other)), _SAME, strict=True)
        alike = (a is b or a.table.select(names).equals(b.table.select(names)) for a, b, names in pairs)
        read = self.records.table["error"]
        return read.null_count == len(read) and all(alike) and bool((self.whole == other.whole).all())

    @cached_property
    def rows(self) -> Mapping[str, tuple[range, range]]:
        """Return which rows of tensors, and of arguments, are of each record."""
        found = {name: (range(0), range(0)) for name in self}
        for n, table in enumerate((self.tensors[1], self.arguments[1])):
            at = 0
            for name, some in groupby(table.names):
                end = at + sum(1 for _ in some)
                found[name] = (range(at, end), found[name][1]) if n == 0 else (found[name][0], range(at, end))
                at = end
        return found

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {name: n for n, name in enumerate(self)}

    def __getitem__(self, name: str) -> Any:
        return self.made(self._order[name], *self.rows[name])

    def made(self, number: int, tensors: range, arguments: range) -> Any:
        """Return a record.

        number: its row in the table of records. tensors, arguments: its rows in those tables.
        Raises DamagedError for a record that could not be read when the tables were made.
        """
        (told,) = self.records.table.slice(number, 1).to_pylist()
        if told["error"]:
            raise DamagedError(str(told["error"]))
        rows = [(row["slot_order"], row["slot"], _tensor(row)) for row in _rows(self.tensors, tensors)]
        for row in _rows(self.arguments, arguments):
            rows.append((row["slot_order"], row["slot"], loads(row["json"].encode())))
        rows.sort(key=lambda row: row[0])
        if len(rows) == 1 and not rows[0][1]:
            return rows[0][2]  # a saved value
        marks = {key: told[key] for key in MARKS if told[key] is not None}
        tree: dict[Any, Any] = {}
        for _, slot, value in rows:
            node = tree
            for key in slot.split("."):
                node = node.setdefault(key, {})
            node[None] = value
        extra = loads(told["extra"].encode()) if told["extra"] else {}
        return _grown(tree) | marks | extra

    def __iter__(self) -> Iterator[str]:
        return iter(self.records.names)

    def __len__(self) -> int:
        return len(self.records.names)

    @cached_property
    def whole(self) -> Any:
        """Return which rows of tensors have four finite numbers and no text, and are no recomputation."""
        return np.isfinite(self.numbers).all(1) & self.tensors[1].plain

    @cached_property
    def numbers(self) -> Any:
        columns = [_array(self.tensors[0][name]) for name in _NUMBERS]
        return np.stack(columns, 1).astype(np.float64, copy=False)

    @cached_property
    def texts(self) -> list[str]:
        """Return the JSON of each argument."""
        found: list[str] = self.arguments[0]["json"].to_pylist()
        return found


def _array(column: Any) -> Any:
    """Return a column of floats, with NaN for NULL. Its own `to_numpy` would import pandas, for half a second."""
    return np.from_dlpack((column.fill_null(math.nan) if column.null_count else column).combine_chunks())


def _rows(of: tuple[Any, AlikeColumns], which: range) -> Iterator[dict[str, Any]]:
    own, alike = (each.slice(which.start, len(which)).to_pylist() for each in (of[0], of[1].table))
    return ({**one, **two} for one, two in zip(alike, own, strict=True))


def _grown(tree: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record's tree with lists for the nodes whose keys count from 0.

    tree: key -> node; the value of a node, where it has one, is at its key None.
    """
    found: dict[str, Any] = {}
    for key, node in tree.items():
        below = _grown({name: each for name, each in node.items() if name is not None})
        # Below a value are tensors that it carries, or slots with a dot that begin with its name.
        if None in node:
            found[key] = node[None]
            carried = {str(path[0]) for path, _ in tensors(node[None]) if path}
            found |= {f"{key}.{name}": each for name, each in below.items() if name not in carried}
        else:
            counts = [*below] == [str(n) for n in range(len(below))]
            found[key] = [*below.values()] if counts else below
    return found


def statistic(key: str, x: Any, dtype: str) -> Any:
    """Return the statistic ``key`` as a tensor object has it. x: the float in the table."""
    if key in ("Max", "Min"):
        if "bool" in dtype.lower():
            return bool(x)
        if "int" in dtype.lower() and float(x).is_integer():  # a quantised tensor's may be a fraction
            return int(x)
    return finite(x)


def _tensor(row: Mapping[str, Any]) -> dict[str, Any]:
    skip = ("record", "slot_order", "slot", "recompute", "backward_pass", "extra")
    told = ((name, value) for name, value in row.items() if value is not None and name not in skip)
    found = {KEY_OF.get(name, name): value for name, value in told}
    for key in KEYS:
        if key in found and key not in COUNTS:
            found[key] = statistic(key, found[key], found["dtype"])
    for key in _JSON:
        if key in found and found[key][:1] in '[{"':
            found[key] = loads(found[key].encode())
    return found | (loads(row["extra"].encode()) if row["extra"] else {})
