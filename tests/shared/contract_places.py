"""A user's own patch of a place that is replaced: it works, each call is recorded once, and it is what is there after.

Who runs it has the table `KINDS`, and `UNLIKE`: those that differ in who holds the place (a module, a class, a base
class) or in what stands there. With these everything is done; with the others, what users do most.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import attrs
import pytest
from documents import Json, strict
from framework import Framework
from opening import opened

MISSING = object()
Saw = Callable[[], None]


def around(inner: Any, saw: Saw) -> Any:
    """A patch as users write it: it calls what it replaces."""

    @functools.wraps(inner)
    def users(*args: Any, **kwargs: Any) -> Any:
        saw()
        return inner(*args, **kwargs)

    return users


@attrs.frozen
class Kind:
    """A kind of place.

    owner, name: one of it.
    use: comes through it once.
    recorded: takes a step's records and report and returns how often that was recorded; None where nothing is.
    model: what start() is given.
    around: makes a user's patch around what is there.
    holding: opens what replaces the place; None for a debugger.
    anew: whether it is a new place at each start, which does not know what was there before a patch of the user's.
    """

    owner: Any
    name: str
    use: Callable[[], Any]
    recorded: Callable[[dict[str, Json], Json], int] | None = None
    model: Any = None
    around: Callable[[Any, Saw], Any] = around
    holding: Callable[[], AbstractContextManager[Any]] | None = None
    anew: bool = False


class Users:
    """The user of a place, who patches it and looks what became of that."""

    def __init__(
        self, kind: Kind, debugger: Any, records: Callable[[int], tuple[dict[str, Json], Json]]
    ) -> None:
        self.kind = kind
        self.debugger = debugger
        self.records = records
        self.original = self.held()
        self.seen = 0
        self.steps = 0

    def held(self) -> Any:
        """What the owner's own namespace has there."""
        return vars(self.kind.owner).get(self.kind.name, MISSING)

    def put(self, value: Any) -> None:
        if value is MISSING:
            delattr(self.kind.owner, self.kind.name)
        else:
            setattr(self.kind.owner, self.kind.name, value)

    def saw(self) -> None:
        self.seen += 1

    def patch(self) -> Any:
        """Put a patch around what is there; returns what was there."""
        before, inner = self.held(), getattr(self.kind.owner, self.kind.name)
        static = isinstance(before, (staticmethod, classmethod))
        made = self.kind.around(before.__func__ if static else inner, self.saw)
        self.put(type(before)(made) if static else made)
        return before

    def uses(self, *, patched: bool) -> None:
        self.seen = 0
        self.kind.use()
        assert bool(self.seen) == patched

    @contextmanager
    def started(self, times: int, *, put_back: bool = False) -> Iterator[None]:
        """Start; at the end stop, and see how often the place was recorded in this step.

        put_back: whether the report says that later calls were not seen.
        """
        if self.kind.holding is not None:
            with self.kind.holding():
                yield
            return
        self.debugger.start(self.kind.model)
        yield
        self.debugger.stop()
        self.debugger.step()
        found, report = self.records(self.steps)
        self.steps += 1
        assert report["faults"] == []
        told = [entry["what"] for entry in report["not_seen"] if "later calls of " in entry["what"]]
        assert [what.endswith(f".{self.kind.name}") for what in told] == [True] * put_back
        if self.kind.recorded is not None:
            assert self.kind.recorded(found, report) == times


def is_ours(value: Any) -> bool:
    """Whether a function was written in a package of ours."""
    value = getattr(value, "__func__", value)
    if type(value) is not FunctionType:
        return type(value).__module__.startswith("probe_")
    return "/probe_" in value.__code__.co_filename


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        module: Any = metafunc.module
        is_common = metafunc.function is test_made_while_started_and_left
        metafunc.parametrize("kind", module.KINDS if is_common else module.UNLIKE, indirect=True)


@pytest.fixture
def users(kind: Kind, framework: Framework, tmp_path: Path) -> Iterator[Users]:
    def read(step: int) -> tuple[dict[str, Json], Json]:
        folder = next((tmp_path / "dump" / f"step{step}").iterdir())
        return strict(folder / "dump.json")["data"], strict(folder / "report.json")

    level = "L1" if kind.model is None else "mix"
    with opened(framework.debugger, tmp_path, level=level) as debugger:
        kind.use()  # what a framework imports and sets at first use is not Probe's doing
        with Users(kind, debugger, read).started(1):
            kind.use()  # nor what it keeps of that
        made = Users(kind, debugger, read)
        made.steps = 0 if kind.holding is not None else 1
        try:
            yield made
            assert made.held() is made.original
        finally:
            if made.held() is not made.original:
                made.put(made.original)


def test_made_while_started_and_left(users: Users) -> None:
    with users.started(1):
        users.patch()
        theirs = users.held()
        users.uses(patched=True)
    assert users.held() is theirs
    gc.collect()
    inner = [cell.cell_contents for cell in getattr(theirs, "__closure__", None) or ()]
    assert not any(is_ours(value) for value in inner)
    for _ in range(2):
        with users.started(1):
            users.uses(patched=True)
        assert users.held() is theirs
    users.uses(patched=True)
    users.put(users.original)
    with users.started(1):
        users.uses(patched=False)


def test_made_before_and_removed_while_started(users: Users) -> None:
    before = users.patch()
    with users.started(1, put_back=not users.kind.anew):
        users.uses(patched=True)
        users.put(before)
    assert users.held() is users.original
    users.uses(patched=False)
    with users.started(1):
        users.uses(patched=False)
    assert users.held() is users.original


def test_made_and_removed_while_started(users: Users) -> None:
    with users.started(2):
        before = users.patch()
        users.uses(patched=True)
        users.put(before)
        users.uses(patched=False)
    assert users.held() is users.original


def test_made_and_removed_between_two_starts(users: Users) -> None:
    before = users.patch()
    theirs = users.held()
    with users.started(1):
        users.uses(patched=True)
    assert users.held() is theirs
    users.put(before)
    with users.started(1):
        users.uses(patched=False)
    assert users.held() is users.original


def test_made_while_started_and_removed_after(users: Users) -> None:
    """It puts back what it saw, which is ours: that does what the original does, and is gone with the next stop."""
    with users.started(1):
        before = users.patch()
        users.uses(patched=True)
    users.put(before)
    users.uses(patched=False)
    with users.started(1):
        users.uses(patched=False)
    assert users.held() is users.original


def test_a_mock_made_while_started_and_stopped_after(users: Users) -> None:
    """It keeps what the owner held in an object of its own, where ours is replaced by what the owner needs."""
    owner, name = users.kind.owner, users.kind.name
    inherited = getattr(owner, name)
    with users.started(1):
        before = users.patch()
        theirs = users.held()
        users.put(before)
        del before
        mocked = mock.patch.object(owner, name, theirs)
        mocked.start()
        users.uses(patched=True)
    mocked.stop()
    users.uses(patched=False)
    if users.original is MISSING:
        assert users.held() is inherited
        users.put(MISSING)
    if isinstance(
        users.original, type
    ):  # of ours something else may have been made: it goes with the next stop
        with users.started(1):
            users.uses(patched=False)
    assert users.held() is users.original


def test_made_in_one_start_and_removed_in_the_next(users: Users) -> None:
    with users.started(1):
        before = users.patch()
        users.uses(patched=True)
    with users.started(2):
        users.uses(patched=True)
        users.put(before)
        users.uses(patched=False)
    assert users.held() is users.original


__all__ = ["pytest_generate_tests", "users", *(name for name in dir() if name.startswith("test_"))]
