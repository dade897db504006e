"""Find and number the stack of the user's code that a call is made from, in the form that msprobe writes."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from attrs import define, field
from probe_format.excerpts import unsignalled
from probe_format.jsonio import inert
from probe_format.own_code import RUNNER, is_own

Pair = tuple[CodeType, int]
"""The code and the instruction of one frame."""

_getframe = sys._getframe
# (id of a code object, instruction) -> (the code, its text). The code is kept so that no other code gets its id.
_texts: dict[tuple[int, int], tuple[CodeType, str]] = {}
# A program that makes code without end (exec in a loop) must not fill the memory: beyond these, start anew.
MOST_TEXTS = 200_000
MOST_STACKS = 100_000


def frames(start: FrameType | None) -> tuple[str, ...]:
    """Return the stack from a frame on, innermost first, as strings like ``"File /a.py, line 3, in f, \\n x = g(x)"``.

    Probe's own frames are left out.
    """
    found = []
    while start is not None:
        name = start.f_globals.get("__name__")
        if name == RUNNER:  # further out is what was called to run the user's script
            break
        if not is_own(name):
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
        linecache.checkcache(name)  # importlib.reload may have read another source
        source = linecache.getline(name, line, frame.f_globals).strip()
    except unsignalled(Exception):  # the user's __loader__ may be broken; the stack is still recorded
        source = ""
    text = inert(f"File {path}, line {line}, in {code.co_name}, \n {source}")
    _texts[key] = (code, text)
    return text


class FrameTable:
    """Number stacks in one step: the same stack of the user's code gets the same id. Safe to use from many threads."""

    def __init__(self) -> None:
        self._find, self._outermost = _stacks.find, _stacks.outermost
        self._lock = threading.RLock()
        self._known: dict[_KnownStack, Known] = {}
        self._ids: dict[tuple[str, ...], int] = {}
        self._numbers = itertools.count()

    def intern(self, above: int = 0, anchor: Anchor | None = None) -> Known:
        """Return what is known of the stack that begins ``above`` frames further out than the caller.

        anchor: where the walk along the frames may end, as all further out is as it was.
        """
        stack = self._find(_getframe(1 + above), anchor or self._outermost)
        try:
            return self._known[stack]
        except KeyError:
            return self._add(stack)

    def _add(self, stack: _KnownStack) -> Known:
        described = stack.frames
        with self._lock:
            # It may be known several times: Probe's own frames differ, or it was forgotten meanwhile.
            new = described not in self._ids
            if new:
                self._ids[described] = next(self._numbers)
            number = self._ids[described]
            self._known[stack] = number, False, described, stack
            return number, new, described, stack


@define(eq=False)
class _KnownStack:
    """One stack, in all steps.

    frames: what `frames` says of it.
    inside: the stacks that end at a frame of Probe's which was called from here.
    """

    frames: tuple[str, ...]
    inside: _KnownFrames = field(factory=dict)


Known = tuple[int, bool, tuple[str, ...], _KnownStack]
"""What `FrameTable.intern` returns: the number of a stack, whether it is new, its frames, and the stack."""
Anchor = tuple[FrameType | None, _KnownStack]
"""A frame of Probe's that is running, and what is known of the stack that it was called from.

None is behind the outermost frame.
"""


class _KnownStacks:
    """Find the known stacks of this process. Safe to use from many threads, and in a fork.

    The stacks are a tree from the innermost frame outwards, so that a known one is found in one walk along its frames,
    without a function call and without a new object. What lies inside of a known stack is a tree of its own. Two equal
    code objects can come from different files, so codes are compared by identity.

    outermost: the anchor where nothing is known yet.
    """

    def __init__(self) -> None:
        self._growing = threading.Lock()
        self.outermost: Anchor = (None, _KnownStack(()))
        self._pairs: dict[tuple[int, int], Pair] = {}
        self._count = 0

    def find(self, start: FrameType, anchor: Anchor) -> _KnownStack:
        """Return the stack from a frame on. anchor: where the walk ends; `outermost` for all of it."""
        end, known = anchor
        nodes = known.inside
        frame: Any = start
        node: Any = None
        only: tuple[tuple[Pair, ...], _KnownStack] | None = None
        try:
            while frame is not end and only is None:
                node = nodes[frame.f_lasti]
                while node.code is not frame.f_code:
                    node = node.other
                frame = frame.f_back
                only = node.only
                nodes = node.further
            further, found = only or ((), node.found)
            for code, lasti in further:  # a single stack goes on from here: is it this one?
                if frame.f_lasti != lasti or frame.f_code is not code:
                    return self._add(start, anchor)
                frame = frame.f_back
        except (KeyError, AttributeError):  # the frames, or what is known of them, ended before
            return self._add(start, anchor)
        return self._add(start, anchor) if found is None or frame is not end else found

    def _add(self, start: FrameType, anchor: Anchor) -> _KnownStack:
        end, known = anchor
        path: list[Pair] = []
        frame: FrameType | None = start
        while frame is not end:
            if frame is None:  # the anchor is in another stack of this thread (greenlets)
                return self.find(start, self.outermost)
            pair = frame.f_code, frame.f_lasti
            path.append(self._pairs.setdefault((id(pair[0]), pair[1]), pair))
            frame = frame.f_back
        stack = _KnownStack(frames(start))
        # Without waiting: in a fork it may be held by a thread that the fork does not have.
        if self._growing.acquire(blocking=False):
            try:
                if self._count >= MOST_STACKS:
                    self.outermost[1].inside, self._pairs, self._count = {}, {}, 0
                self._count += 1
                _insert(known.inside, tuple(path), stack)
            finally:
                self._growing.release()
        return stack


_stacks = _KnownStacks()
_KnownFrames = dict[int, "_KnownFrame"]


@define(eq=False)
class _KnownFrame:
    """One frame of known stacks: a code and an instruction, after the frames further in.

    code: the code of the frame. Its instruction is the key under which the frame before it has it in ``further``.
    other: a frame with the same instruction and another code, or None.
    only: while a single stack goes on from here: its further frames, and what is known of it.
    further: when several do: instruction of the next frame -> that frame.
    found: what is known of the stack that ends here; None if none does.
    """

    code: CodeType
    other: _KnownFrame | None
    only: tuple[tuple[Pair, ...], _KnownStack] | None
    further: _KnownFrames = field(factory=dict)
    found: _KnownStack | None = None


def _insert(nodes: _KnownFrames, path: tuple[Pair, ...], stack: _KnownStack) -> None:
    """Put a stack in the tree, where it may be already."""
    node = None
    for depth, (code, lasti) in enumerate(path):
        first = node = nodes.get(lasti)
        while node is not None and node.code is not code:
            node = node.other
        if node is None:
            nodes[lasti] = _KnownFrame(code, first, (path[depth + 1 :], stack))
            return
        if node.only is not None:
            # A thread that reads meanwhile finds the first stack in the old place or the new.
            further, known = node.only
            if further:
                _insert(node.further, further, known)
            else:
                node.found = known
            node.only = None
        nodes = node.further
    if node is not None:
        node.found = stack
