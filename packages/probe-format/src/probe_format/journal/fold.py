"""Fold events into the documents of one step (spec/journal.md, "Assembling").

The writer feeds the fold each event that it appends to the journal; a reader, and recovery, feed it the events of a
journal's file. A value is never looked into: it is a `Reference`, its finished JSON or the place of that in the
journal, and goes into the text of a document unchanged.

Rows are plain data, so that they can be packed when there are many. The row of a saved value is a reference. The row
of a record is its finished JSON, or a dict: JSON keys -> a reference, or slots (nested lists and dicts of these). Two
more things may be in a slot:

- a float, while it waits for its gradient: how many `over` events came before. After one more it holds nothing.
- a tuple, where gradients arrived more than once: the first (None where an older row has it) and a list of the rest.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import Factory, define, field

from probe_format import jsonio, layout
from probe_format.names import Direction, with_direction
from probe_format.values import json_key

from .events import NODE, STRUCTURE, Event
from .packed import Packed, PackedRows
from .pages import Fillers, Pages, lost
from .places import Places, Reference, places_of
from .value_paths import Room, blank, blank_slots, get, put

Head = Mapping[str, Any]
Values = Sequence[Reference]
Row = Any

#: How many bytes of values are kept in memory; of later ones the places are.
KEPT = 8 << 20

_OUTPUT, _REDONE = b'"output":', b'"recompute":'
_ARGUMENTS, _KEYWORDS = b'"input_args":', b'"input_kwargs":'
_PARTS = {"a": _ARGUMENTS, "w": _KEYWORDS, "p": b'"parameters":', "b": b'"buffers":'}
_INPUT, _LATER = b'"input":', b'"later_passes":'
_SIDES = {"i": _INPUT, "o": _OUTPUT}
#: How many slots a backward pass counts for besides its own: the lists around these take memory too.
_PASS = 32
_LOST = lost("gradient: the process ended before this was written")


def _joined(name: str, rows: list[Row]) -> Row:
    """Return one row made of all rows of a name. rows: the oldest first."""
    if ".parameters_grad" in name or ".optimizer_grad" in name:  # each gradient that arrives is one more
        return {key: [item for row in rows for item in row.get(key, ())] for row in rows for key in row}
    return functools.reduce(_overlaid, rows)


@functools.lru_cache(32)
def _begun(letters: str) -> tuple[Row, list[bytes]]:
    """Return the row of a call that begins, still blank, and the keys of its values.

    letters: as in `events.enter`. The output comes before parameters and buffers.
    """
    keys = [_PARTS[letter] for letter in letters]
    before = [key for key, letter in zip(keys, letters, strict=True) if letter in "aw"]
    return dict.fromkeys([*before, _OUTPUT, *keys]), keys


def _closed(row: Row) -> Row:
    """Return the record of a call that is over, whose values are in memory: finished JSON."""
    try:
        return b"{%b}" % b",".join([key + value for key, value in row.items()])
    except TypeError:  # it was recomputed before it was over: a part is nested
        return row


def _opened(row: Row) -> Row:
    """Return a record as a dict, so that keys can be added: finished JSON becomes one key with an empty value."""
    return row if type(row) is dict else {row[1:-1]: b""} if len(row) > 2 else {}


def _overlaid(old: Row, new: Row) -> Row:
    """Return two rows of a name as one; where both have a value, the newer counts."""
    if type(old) is bytes and isinstance(new, dict):
        old = _opened(old)
    if isinstance(old, dict) and isinstance(new, dict):
        if _ARGUMENTS in new:  # recomputed once more
            return new
        return {**old, **{key: _overlaid(old[key], new[key]) if key in old else new[key] for key in new}}
    if isinstance(old, list) and isinstance(new, list):
        long = max(len(old), len(new))
        old, new = ([*each, *[None] * (long - len(each))] for each in (old, new))
        return [_overlaid(a, b) for a, b in zip(old, new, strict=True)]
    if type(new) is tuple and new[0] is None:  # the first gradient is in the old row
        first, more = old if type(old) is tuple else (old if isinstance(old, bytes | int) else None, [])
        return first, [*more, *new[1]]
    return old if new is None else new


def _parent(name: str, rows: list[tuple[str | None, bool]]) -> tuple[str | None, bool]:
    """Return a node's last row that is of a call; where none is, its first. rows: as in `Fold.nodes`."""
    return next((row for row in reversed(rows) if row[1]), rows[0])


@define
class Fold:
    """Hold the documents of one step.

    room: how many empty slots events from a file may ask for; None where they are this process's own.
    kept: how many more bytes of values are kept in memory.
    data: name of a record -> its row.
    nodes: node of the tree -> (its parent, whether a call said so).
    """

    room: Room | None = None
    kept: int = KEPT
    _header: Head = field(factory=dict)
    _labels: dict[str, None] = field(factory=dict)
    _tree: bool = True
    data: PackedRows = field(
        factory=lambda: PackedRows(_joined, lambda name: with_direction(name, "forward") != name)
    )
    _calls: set[str] = field(factory=set)  # names of calls that have not returned
    nodes: PackedRows = field(factory=lambda: PackedRows(_parent))
    _last_node: tuple[str | None, bool] = (None, True)
    _stacks: dict[int, Packed] = field(factory=dict)
    _frames: dict[int, bytes] = field(factory=dict)
    _awaited: dict[str, Sequence[Any]] = field(factory=dict)
    _fillers: Fillers = field(default=Factory(lambda self: Fillers(self.room), takes_self=True))
    _overs: int = 0
    _coverage: Head = field(factory=dict)
    _faults: dict[tuple[str, str], int] = field(factory=dict)

    def take(self, event: Event, at: int = 0, size: int = 0) -> None:
        """Add the next event; one of an unknown kind is skipped.

        at: where its frame begins in the journal.
        size: of the event in bytes.

        Raises ValueError, TypeError, KeyError, IndexError, AttributeError or RecursionError when the form of an event
        from a file is not the specification's.
        """
        head, values = event
        try:
            handler = _HANDLERS[head["k"]]
        except KeyError:
            return
        self.kept -= size
        handler(self, head, values if self.kept >= 0 else places_of(at, len(values)))

    # -- the events -----------------------------------------------------------------------------------

    def on_head(self, e: Head, values: Values) -> None:
        self._header = dict(e["header"])
        self._tree = self._header.get("level") != "L1"

    def on_frames(self, e: Head, values: Values) -> None:
        self._frames[e["i"]] = jsonio.dumps(e["f"])

    def on_enter(self, e: Head, values: Values) -> None:
        name = e["n"]
        if self._tree:
            self._node(name, e["u"], called=True)
        only = e.get("r")
        if only == NODE:
            return
        if "x" in e and "label" in e["x"]:
            self._labels[e["x"]["label"]] = None
        if "s" in e:
            stack = e["s"]
            if stack not in self._stacks:
                self._stacks[stack] = Packed()
            self._stacks[stack].add(name)
        if only == STRUCTURE:
            return
        row: Row
        if e["v"] == "aw":  # nearly all of them
            arguments, keywords = values
            row = {_ARGUMENTS: arguments, _KEYWORDS: keywords, _OUTPUT: None}
        else:
            blank_row, keys = _begun(e["v"])
            row = {**blank_row, **dict(zip(keys, values, strict=True))}
        if "x" in e:
            row.update((json_key(key), jsonio.dumps(value)) for key, value in e["x"].items())
        self._calls.add(name)
        self._open(name)[name] = row

    def on_exit(self, e: Head, values: Values) -> None:
        name = e["n"]
        if name not in self._calls:  # only a node
            return
        self._calls.remove(name)
        rows = self.data.rows_open
        row = rows.pop(name)
        if values:
            (row[_OUTPUT],) = values
        elif "e" in e:
            row[_OUTPUT] = []
            row[b'"raised":'] = jsonio.dumps(e["e"])
        else:
            del row[_OUTPUT]
        rows[name] = _closed(row) if self.kept >= 0 else row  # else it has places

    def on_redo(self, e: Head, values: Values) -> None:
        arguments, keywords = values
        self._reopened(e["n"])[_REDONE] = {_ARGUMENTS: arguments, _KEYWORDS: keywords}

    def on_redone(self, e: Head, values: Values) -> None:
        if values:
            (self._reopened(e["n"]).setdefault(_REDONE, {})[_OUTPUT],) = values

    def on_back(self, e: Head, values: Values) -> None:
        name = e["n"]
        if self._tree and name not in self.nodes.rows_open:
            self._node(name, e["u"], called=False)
        if "r" in e:
            return
        rows = self.data.rows_open
        row = rows.pop(name, None)
        if row is None:
            rows = self._open(name)
            row = self._blank(e)
        part = row if e["t"] == 0 else self._later(row, e)
        room = self.room
        if "w" in e:
            for slot in e["w"]:
                put(part.setdefault(_SIDES[slot[0]], []), slot[1:], float(self._overs), room)
        for slot, value in zip(e["v"], values, strict=True):
            side = part.setdefault(_SIDES[slot[0]], [])
            try:
                if room is None:
                    _, at = slot
                    side[at] = value  # nearly all of them
                    continue
            except (ValueError, IndexError, TypeError):  # within a nest, or past the slots that were known
                pass
            put(side, slot[1:], value, room)
        if "partial" in e:
            part[b'"partial":'] = b"true"
        rows[name] = row

    def _blank(self, e: Head) -> Row:
        sides = zip((_INPUT, _OUTPUT), e.get("g", (0, 0)), strict=True)
        # A side that data_mode filters out has no form, and its key is absent.
        return {key: blank_slots(form, self.room) for key, form in sides if form is not None}

    def _later(self, row: Row, e: Head) -> Row:
        passes: list[Row] = row.setdefault(_LATER, [])
        missing = max(e["t"] - len(passes), 0)
        if self.room is not None:
            self.room.take(_PASS * missing)  # at once: a damaged number may be any
        passes += [self._blank(e) for _ in range(missing)]
        return passes[e["t"] - 1]

    def on_pgrad(self, e: Head, values: Values) -> None:
        self._open(e["n"]).setdefault(e["n"], {}).setdefault(json_key(e["q"]), []).append(*values)

    def on_save(self, e: Head, values: Values) -> None:
        (self._open(e["n"])[e["n"]],) = values
        if "g" in e:
            name, form = e["g"]
            self._open(name)[name] = blank(form, self.room)
            if "w" in e:
                self._awaited[name] = e["w"]

    def on_grad(self, e: Head, values: Values) -> None:
        name, path = e["n"], e["p"]
        rows = self._open(name)
        for slot in self._awaited.pop(name, ()):
            put(rows, (name, *slot), float(self._overs), self.room)
        value: Row
        (value,) = values
        if e.get("t"):  # one more backward pass through the same graph
            value = _overlaid(get(rows.get(name), path), (None, [value]))
        put(rows, (name, *path), value, self.room)

    def on_fill(self, e: Head, values: Values) -> None:
        for number, filler in zip(e["h"], values, strict=True):
            self._fillers.add(number, filler)

    def on_over(self, e: Head, values: Values) -> None:
        self._overs += 1
        self._awaited.clear()

    def on_fault(self, e: Head, values: Values) -> None:
        key = (e["w"], e["m"])
        self._faults[key] = self._faults.get(key, 0) + 1

    def on_tally(self, e: Head, values: Values) -> None:
        self._coverage = dict(e["d"])

    def _open(self, name: str) -> dict[str, Row]:
        """Return the newer records, to which one of this name may be added; pack older ones if there are many."""
        data = self.data
        if len(data.rows_open) > data.most and name not in data.rows_open:
            data.pack(lambda name: name not in self._calls)
        return data.rows_open

    def _reopened(self, name: str) -> dict[bytes, Row]:
        """Return the newer record of a call, or an empty one that will be joined with it."""
        rows = self._open(name)
        rows[name] = row = _opened(rows.get(name, b"{}"))
        return row  # type: ignore[no-any-return]

    def _node(self, name: str, parent: str | None, *, called: bool) -> None:
        nodes = self.nodes
        row = self._last_node
        if row[0] is not parent or row[1] is not called:  # a sibling of the last node shares its row
            row = self._last_node = parent, called
        nodes.rows_open[name] = row
        if len(nodes.rows_open) > nodes.most:
            nodes.pack()

    # -- the documents --------------------------------------------------------------------------------

    def pages(self, places: Places | None = None) -> Pages:
        """Return the documents as they are now; more events may follow.

        places: finds the values that are not in memory, where there may be any.
        """
        places = places or Places(-1, Path(layout.JOURNAL))
        faults = [{"where": w, "message": m, "count": n} for (w, m), n in self._faults.items()]
        return Pages(
            {key: value for key, value in self._header.items() if key != "deferred"}
            | ({"labels": list(self._labels)} if self._labels else {}),
            self._records(places),
            self._stack_lines(),
            self._construct_lines(),
            self._coverage,
            faults,
            functools.partial(self._fillers.filled, places=places),
        )

    def _records(self, places: Places) -> Iterator[bytes]:
        for rows in _some(self._rows()):
            names = jsonio.texts([name for name, _ in rows])
            texts = [self._text(row, places) for _, row in rows]
            yield b"".join([b',\n"%b": %b' % pair for pair in zip(names, texts, strict=True)])

    def _rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the name and row of each record; mark those of calls that have not returned."""
        for name, row in self.data.rows():
            if type(row) is dict:  # else it is finished
                if name in self._calls:
                    row = {**row, _OUTPUT: [], b'"incomplete":': b"true"}
                elif len(row) == 1 and _REDONE in row:
                    continue  # of a call that has no record
            yield name, row

    def _text(self, row: Row, places: Places) -> bytes:
        kind, text = type(row), self._text
        if kind is dict:
            pairs = [
                (key if type(key) is bytes else json_key(key)) + text(item, places)
                for key, item in row.items()
            ]
            return b"{%b}" % b",".join(pairs)
        if kind is bytes:
            return row  # type: ignore[no-any-return]
        if kind is list:
            try:
                return b"[%b]" % b",".join(row)  # nearly all of them
            except TypeError:
                return b"[%b]" % b",".join([text(item, places) for item in row])
        if kind is int:
            return places.value(row)
        if kind is tuple:
            first, more = row
            first = _LOST if first is None else text(first, places)
            return first[:-1] + b',"later_passes":%b}' % text(more, places)
        return _LOST if row is not None and row == self._overs else b"null"

    def _stack_lines(self) -> Iterator[bytes]:
        for i, (number, names) in enumerate(self._stacks.items()):
            before = b',\n"%d": [[' % i
            for page in names.pages():
                yield before + jsonio.dumps(page)[1:-1]
                before = b","
            yield b"],%b]" % self._frames.get(number, b"[]")

    def _construct_lines(self) -> Iterator[bytes]:
        """Yield the lines of construct.json: of the nodes, then of parents that no event has made nodes."""
        last: dict[str, None] = {}
        for rows in _some((name, parent) for name, (parent, _) in self.nodes.rows()):
            parents = dict.fromkeys(parent for _, parent in reversed(rows) if parent is not None)
            for parent in reversed(parents):
                last.pop(parent, None)
                last[parent] = None
            yield _nodes(rows)
        ways: tuple[Direction, ...] = ("forward", "backward")
        wanted = {*last, *(with_direction(parent, way) for parent in last for way in ways)}
        tree = {name: parent for name, (parent, _) in self.nodes.rows() if name in wanted}
        if absent := [parent for parent in last if parent not in tree]:
            yield _nodes(list(_missing(absent, tree).items()))


def _some(rows: Iterator[tuple[str, Row]]) -> Iterator[list[tuple[str, Row]]]:
    while some := list(islice(rows, 256)):
        yield some


def _nodes(rows: list[tuple[str, str | None]]) -> bytes:
    parents = list({parent for _, parent in rows if parent is not None})
    texts: dict[str | None, bytes] = {None: b"null"}
    texts |= {parent: b'"%b"' % text for parent, text in zip(parents, jsonio.texts(parents), strict=True)}
    names = jsonio.texts([name for name, _ in rows])
    return b"".join([b',\n"%b": %b' % (n, texts[parent]) for n, (_, parent) in zip(names, rows, strict=True)])


def _missing(absent: Iterable[str], tree: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the nodes that a tree lacks, with their parents. absent: the parents in the tree that are no nodes."""
    out: dict[str, str | None] = {}
    todo = list(absent)
    while todo:
        name = todo.pop()
        if name in out or name in tree:
            continue
        forward = with_direction(name, "forward")
        above = tree.get(forward) if name != forward else None
        parent = above and with_direction(above, "backward")
        out[name] = parent
        if parent is not None:
            todo.append(parent)
    return out


_HANDLERS = {name[3:]: method for name, method in vars(Fold).items() if name.startswith("on_")}
