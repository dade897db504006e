"""Find and number the stack of the user's code that a call is made from, in the form that msprobe writes."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType

from attrs import define, field
from probe_format.own_code import OWN_MODULES, is_own

__all__ = ["FrameTable", "frames"]

Key = tuple[tuple[int, ...], tuple[CodeType, ...]]
"""Identity of a stack: the instruction and the code of every frame, innermost first."""

Pair = tuple[CodeType, int]
"""The code and the instruction of one frame."""
Known = tuple[int, bool, tuple[str, ...]]
"""What `FrameTable.intern` returns of a stack that it knows."""

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
        if not is_own(start.f_globals.get("__name__"), skip):
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
    text = f"File {path}, line {line}, in {code.co_name}, \n {source}"
    _texts[key] = (code, text)
    return text


class FrameTable:
    """Number stacks: the same stack of the user's code gets the same id. Safe to use from many threads.

    The stacks are a tree from the innermost frame outwards, so that a known one is found in one walk along its frames,
    without a function call and without a new object. Two equal code objects can come from different files, so codes are
    compared by identity.
    """

    def __init__(self, skip_modules: Sequence[str] = OWN_MODULES) -> None:
        self._skip = tuple(skip_modules)
        self._lock = threading.Lock()
        self._tree: _Steps = {}
        self._pairs: dict[tuple[int, int], Pair] = {}
        self._count = 0
        self._ids: dict[tuple[str, ...], int] = {}

    def intern(self) -> tuple[int, bool, tuple[str, ...]]:
        """Return (id from 0, whether it is new, frames) of the caller's stack. Takes about 3 us for a known one."""
        frame: FrameType | None = _getframe(1)
        start = frame
        steps = self._tree
        step: _Step | None = None
        only: tuple[tuple[Pair, ...], Known] | None = None
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

    def _add(self, start: FrameType | None) -> tuple[int, bool, tuple[str, ...]]:
        described = _describe(start, self._skip)
        with self._lock:
            if self._count >= MOST_STACKS:
                self._tree, self._pairs, self._count = {}, {}, 0
            self._count += 1
            # Stacks that differ in Probe's own frames alone are the same to the user.
            new = described not in self._ids
            number = self._ids.setdefault(described, len(self._ids))
            _insert(self._tree, self._path(start), (number, False, described))
            return number, new, described

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
    only: tuple[tuple[Pair, ...], Known] | None
    further: _Steps = field(factory=dict)
    found: Known | None = None

    def split(self) -> None:
        """Make room for a second stack. A thread that reads meanwhile finds the first in the old place or the new."""
        only = self.only
        if only is not None:
            _insert_at(self, *only)
            self.only = None


def _insert(steps: _Steps, path: tuple[Pair, ...], known: Known) -> None:
    """Put a stack in the tree, where it may be already."""
    step = None
    for depth, (code, lasti) in enumerate(path):
        first = step = steps.get(lasti)
        while step is not None and step.code is not code:
            step = step.other
        if step is None:
            steps[lasti] = _Step(code, first, (path[depth + 1 :], known))
            return
        step.split()
        steps = step.further
    if step is not None:
        step.found = known


def _insert_at(step: _Step, path: tuple[Pair, ...], known: Known) -> None:
    if path:
        _insert(step.further, path, known)
    else:
        step.found = known
