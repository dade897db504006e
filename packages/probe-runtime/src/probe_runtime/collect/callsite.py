"""Find and number the stack of the user's code that a call is made from, in the form that msprobe writes."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType

from attrs import define, field
from probe_format.jsonio import inert
from probe_format.own_code import OWN_MODULES, RUNNER, is_own

Key = tuple[tuple[int, ...], tuple[CodeType, ...]]
"""Identity of a stack: the instruction and the code of every frame, innermost first."""

Pair = tuple[CodeType, int]
"""The code and the instruction of one frame."""
Known = tuple[int, bool, tuple[str, ...]]
"""What `FrameTable.intern` returns: the number of a stack, whether it is new, its frames."""

_getframe = sys._getframe
# (id of a code object, instruction) -> (the code, its text). The code is kept so that no other code gets its id.
_texts: dict[tuple[int, int], tuple[CodeType, str]] = {}
# A program that makes code without end (exec in a loop) must not fill the memory: beyond these, start anew.
MOST_TEXTS = 200_000
MOST_STACKS = 100_000


def frames(skip_modules: Sequence[str] = OWN_MODULES) -> tuple[Key, tuple[str, ...]]:
    """Return the caller's stack, innermost first, as strings like ``"File /a.py, line 3, in f, \\n x = g(x)"``.

    skip_modules: packages whose frames are left out. The key is equal for equal stacks.
    """
    frame = _getframe(1)
    lastis, codes = _walk(frame)
    return (tuple(lastis), tuple(codes)), _describe(frame, tuple(skip_modules))


def _walk(start: FrameType | None) -> tuple[list[int], list[CodeType]]:
    lastis: list[int] = []
    codes: list[CodeType] = []
    while start is not None:
        lastis.append(start.f_lasti)
        codes.append(start.f_code)
        start = start.f_back
    return lastis, codes


def _describe(start: FrameType | None, skip: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    while start is not None:
        name = start.f_globals.get("__name__")
        if name == RUNNER:  # further out is what was called to run the user's script
            break
        if not is_own(name, skip):
            found.append(_text(start))
        start = start.f_back
    return tuple(found)


def _text(frame: FrameType) -> str:
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _texts.get(key)
    if known is not None:
        return known[1]
    if len(_texts) > MOST_TEXTS:
        _texts.clear()
    line = frame.f_lineno or code.co_firstlineno
    name = code.co_filename
    # <string>, <stdin> and <frozen runpy> are not files.
    path = name if name.startswith("<") else os.path.abspath(name)
    try:
        source = linecache.getline(name, line, frame.f_globals).strip()
    except Exception:  # the user's __loader__ may be broken; the stack is still recorded
        source = ""
    text = inert(f"File {path}, line {line}, in {code.co_name}, \n {source}")
    _texts[key] = (code, text)
    return text


class FrameTable:
    """Number stacks in one step: the same stack of the user's code gets the same id. Safe to use from many threads."""

    def __init__(self, skip_modules: Sequence[str] = OWN_MODULES) -> None:
        self._place = _Places.of(tuple(skip_modules)).find
        self._lock = threading.Lock()
        self._known: dict[_Place, Known] = {}
        self._ids: dict[tuple[str, ...], int] = {}

    def intern(self) -> Known:
        """Return (id from 0, whether it is new, frames) of the caller's stack. Takes about 3 us for a known one."""
        place = self._place(_getframe(1))
        try:
            return self._known[place]
        except KeyError:
            return self._add(place)

    def _add(self, place: _Place) -> Known:
        described = place.frames
        with self._lock:
            # A stack may have several places: Probe's own frames differ, or places were forgotten meanwhile.
            new = described not in self._ids
            number = self._ids.setdefault(described, len(self._ids))
            self._known[place] = number, False, described
            return number, new, described


@define(eq=False)
class _Place:
    """One stack, in all steps. frames: what `frames` says of it."""

    frames: tuple[str, ...]


class _Places:
    """Find the places of stacks. Safe to use from many threads, and in a fork.

    The stacks are a tree from the innermost frame outwards, so that a known one is found in one walk along its frames,
    without a function call and without a new object. Two equal code objects can come from different files, so codes are
    compared by identity.
    """

    def __init__(self, skip: tuple[str, ...]) -> None:
        self._skip = skip
        self._growing = threading.Lock()
        self._tree: _Steps = {}
        self._pairs: dict[tuple[int, int], Pair] = {}
        self._count = 0

    @staticmethod
    @functools.cache
    def of(skip: tuple[str, ...]) -> _Places:
        """Return those of this process. skip: packages whose frames are left out."""
        return _Places(skip)

    def find(self, start: FrameType) -> _Place:
        frame: FrameType | None = start
        steps = self._tree
        step: _Step | None = None
        only: tuple[tuple[Pair, ...], _Place] | None = None
        while frame is not None and only is None:
            try:
                step = steps[frame.f_lasti]
            except KeyError:
                return self._add(start)
            while step.code is not frame.f_code:
                step = step.other
                if step is None:
                    return self._add(start)
            frame = frame.f_back
            only = step.only
            steps = step.further
        found = None if step is None else step.found
        if only is not None:  # a single stack goes on from here: is it this one?
            further, found = only
            for code, lasti in further:
                if frame is None or frame.f_lasti != lasti or frame.f_code is not code:
                    return self._add(start)
                frame = frame.f_back
        return self._add(start) if found is None or frame is not None else found

    def _add(self, start: FrameType) -> _Place:
        place = _Place(_describe(start, self._skip))
        # Without waiting: in a fork it may be held by a thread that the fork does not have.
        if self._growing.acquire(blocking=False):
            try:
                if self._count >= MOST_STACKS:
                    self._tree, self._pairs, self._count = {}, {}, 0
                self._count += 1
                _insert(self._tree, self._path(start), place)
            finally:
                self._growing.release()
        return place

    def _path(self, start: FrameType | None) -> tuple[Pair, ...]:
        path = []
        while start is not None:
            pair = start.f_code, start.f_lasti
            path.append(self._pairs.setdefault((id(pair[0]), pair[1]), pair))
            start = start.f_back
        return tuple(path)


_Steps = dict[int, "_Step"]


@define(eq=False)
class _Step:
    """One frame of known stacks: a code and an instruction, after those of the steps before it.

    code: the code of the frame; the instruction is its key in the steps that it is one of.
    other: a step with the same instruction and another code, or None.
    only: while a single stack goes on from here: its further frames, and what is known of it.
    further: when several do: instruction of the next frame -> the step.
    found: what is known of the stack that ends here; None if none does.
    """

    code: CodeType
    other: _Step | None
    only: tuple[tuple[Pair, ...], _Place] | None
    further: _Steps = field(factory=dict)
    found: _Place | None = None

    def split(self) -> None:
        """Make room for a second stack. A thread that reads meanwhile finds the first in the old place or the new."""
        only = self.only
        if only is not None:
            _insert_at(self, *only)
            self.only = None


def _insert(steps: _Steps, path: tuple[Pair, ...], place: _Place) -> None:
    """Put a stack in the tree, where it may be already."""
    step = None
    for depth, (code, lasti) in enumerate(path):
        first = step = steps.get(lasti)
        while step is not None and step.code is not code:
            step = step.other
        if step is None:
            steps[lasti] = _Step(code, first, (path[depth + 1 :], place))
            return
        step.split()
        steps = step.further
    if step is not None:
        step.found = place


def _insert_at(step: _Step, path: tuple[Pair, ...], place: _Place) -> None:
    if path:
        _insert(step.further, path, place)
    else:
        step.found = place
