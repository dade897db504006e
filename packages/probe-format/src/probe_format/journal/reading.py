"""Read the events of a journal, of which a kill or a disk may have left a part (spec/journal.md, "Reading")."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from probe_format import jsonio
from probe_format.checksum import crc32
from probe_format.errors import FormatError

from .events import Event, opens
from .fold import Fold
from .frames import MAGIC, MAX_FRAME
from .places import FRAME
from .value_paths import Room
from .version1 import MAGIC_1, Upgrade

#: Limit on the empty slots that a journal may ask for, besides one for each of its bytes.
_SLOTS = 1 << 22
_MOST_TOLD = 10
#: Limit in bytes on checking false frames: each of them could otherwise cost a read of the whole file.
_VAIN_FLOOR, _VAIN_TIMES = 1 << 26, 4


@frozen
class JournalContents:
    """Hold everything readable in a journal.

    events: as they were written; those of version 1 are objects.
    state: ``whole``; ``torn`` (the last frame is cut short, normal after a kill); ``damaged`` (a frame in
    the middle does not match its checksum; the events after it, if found, are included).
    """

    events: tuple[Event | dict[str, Any], ...] = field(repr=False)
    state: Literal["whole", "torn", "damaged"]
    valid_bytes: int
    file_bytes: int
    detail: str = ""

    @property
    def is_empty(self) -> bool:
        """Return whether the journal is whole, or torn at its end alone, and no event is of a record or a node."""
        kinds = (event if isinstance(event, dict) else event[0] for event in self.events)
        return self.state != "damaged" and not any(opens((kind, ())) for kind in kinds)


def folded(contents: JournalContents) -> Fold:
    """Return the documents that the events of a file add up to.

    Raises ValueError, TypeError, KeyError, IndexError, AttributeError or RecursionError when the form of an event is
    not the specification's.
    """
    fold = Fold(Room(contents.file_bytes + _SLOTS), kept=contents.file_bytes + 1)
    upgrade = Upgrade()
    for event in contents.events:
        if isinstance(event, dict):
            for new in upgrade.event(event):
                fold.take(new)
        else:
            fold.take(event)
    fold.take(upgrade.files_written())
    return fold


def read_journal(path: Path) -> JournalContents:
    """Read every intact event of ``path``, of this version or the one before.

    Raises FormatError when it is not a journal, OSError when it cannot be read.
    """
    data = path.read_bytes()
    at, end = len(MAGIC), len(data)
    first = data.startswith(MAGIC_1)
    frames = Frames(data, head_of if first else _event)
    damage: list[str] = []
    if not (first or data.startswith(MAGIC)):
        if MAGIC.startswith(data) or MAGIC_1.startswith(data):  # killed between open and the first write
            return JournalContents((), "torn", 0, len(data), "the header itself is cut short")
        if frames.at(at)[0] is None:
            raise FormatError(f"{path} is not a Probe journal (it does not start with {MAGIC!r}).")
        damage.append("the header is not what it should be")
    events = tuple(frames.events(at, damage))
    at = frames.end
    if frames.why == "cut short" and not damage and not _wrong_length(data, at):
        return JournalContents(events, "torn", at, end, f"{end - at} bytes after the last event")
    if frames.why:
        damage.append(f"{frames.why} at byte {at}; nothing readable after it")
    if damage:
        if len(damage) > _MOST_TOLD:
            damage[_MOST_TOLD:-1] = [f"... and {len(damage) - _MOST_TOLD - 1} more places"]
        return JournalContents(events, "damaged", at, end, "; ".join(damage))
    return JournalContents(events, "whole", end, end)


class Frames:
    """Find the frames in a journal's bytes, in time that is linear in the number of bytes.

    end, why: where the last frame ends that `events` has found, and why there is none after it; empty at the very end.
    """

    def __init__(self, data: bytes, decoded: Callable[[bytes], Any]) -> None:
        """Read ``data``. decoded: returns the event in a payload; returns None, or raises ValueError, if none is."""
        self._data = data
        self._decoded = decoded
        self._left = _VAIN_FLOOR + _VAIN_TIMES * len(data)
        self.end, self.why = 0, ""

    def events(self, at: int, damage: list[str], base: int = 0) -> Iterator[Any]:
        """Yield the events from ``at`` on, as far as there are any; add what is not whole between them to ``damage``.

        base: where the bytes begin in the file.
        """
        while at < len(self._data) and not self.why:
            event, after, why = self.at(at)
            if event is not None:
                yield event
                at = after
            elif (following := self.after(at + 1)) is not None:
                damage.append(f"{why} at byte {base + at}; reading goes on at byte {base + following}")
                at = following
            else:
                self.why = why
        self.end = at

    def at(self, at: int) -> tuple[Any, int, str]:
        """Return the event of the frame at ``at`` and where it ends; None and why without an intact frame."""
        data = self._data
        if at + FRAME.size > len(data):
            return None, at, "cut short"
        length, crc = FRAME.unpack_from(data, at)
        stop = at + FRAME.size + length
        if length > MAX_FRAME or stop > len(data):
            return None, at, "cut short"
        if length > self._left:
            return None, at, "too much damage to be looked through"
        payload = data[at + FRAME.size : stop]
        if crc32(payload) != crc:
            self._left -= length
            return None, at, "checksum differs"
        try:
            event = self._decoded(payload)
        except ValueError:
            event = None
        if event is None:
            self._left -= length
            return None, at, "not an event"
        return event, stop, ""

    def after(self, at: int) -> int | None:
        """Return the start of the next intact frame at or after ``at``: events begin ``{"k":``."""
        probe = b'{"k":'
        found = self._data.find(probe, at + FRAME.size)
        while found >= 0:
            start = found - FRAME.size
            if start >= at and self.at(start)[0] is not None:
                return start
            found = self._data.find(probe, found + 1)
        return None


def _event(payload: bytes) -> Event | None:
    line, *values = payload.split(b"\n")
    head = head_of(line)
    return None if head is None else (head, values)


def head_of(line: bytes) -> dict[str, Any] | None:
    """Return the object that says what an event is, None where there is none. Raises ValueError if it is no JSON."""
    head = jsonio.loads(line)
    return head if isinstance(head, dict) and isinstance(head.get("k"), str) else None


def _wrong_length(data: bytes, at: int) -> bool:
    """Return whether the last frame is complete and only its length field is wrong."""
    payload = data[at + FRAME.size :]
    return bool(payload) and crc32(payload) == FRAME.unpack_from(data, at)[1]
