"""Replace a function where it is held: in an attribute, an item of a dict or list, or a default argument.

An attribute is a `Place`: owner, name, what was there ("theirs") and its replacement ("ours"). Putting ours there and
taking it back each compare first: what somebody else has put there meanwhile is theirs from then on, and stays.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterable
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import attrs

from .stand_in import StandIn, stand_in

Function = Callable[..., Any]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""Marks an attribute that the owner inherits: it has no raw value, and putting it back means deleting it."""
unseen: dict[str, str] = {}
"""Calls that could not be seen -> why; the code that reports them takes them out."""
_PUT_BACK = "somebody else put back there what was there before start(), so these calls read as never made"


@attrs.frozen(eq=False)
class Stood:
    """What was at a place, and what stands in for it.

    theirs: what the owner's own namespace held (ABSENT when inherited, a staticmethod object when written so).
    ours: what it holds while replaced.
    original: the function in ``theirs``, or the inherited one.
    replacement: the function in ``ours``.
    """

    theirs: Any
    ours: Any
    original: Function
    replacement: Function

    @property
    def pairs(self) -> tuple[tuple[Any, Any], ...]:
        """Return pairs (object of ours that user code can hold, what takes its place); two for a static method.

        The function and the object around it are apart, as a class may need back the very object that it held.
        """
        held = self.original if self.theirs is ABSENT else self.theirs
        function = () if self.ours is self.replacement else ((self.replacement, self.original),)
        return *function, (self.ours, held)


@attrs.define(eq=False)
class Place:
    """The attribute owner.name of a module or class, which is replaced for a while.

    make: takes the function that is there, and returns the one that stands in for it. It is called once for each
        function, as compiled code is guarded by a function's identity.
    label: the label that calls are recorded under; None where they are not recorded.
    now: what was there when it was last looked up.
    first: what was there when it was looked up first, most often the framework's own function.
    is_put: whether ours was put there, and not taken back yet.
    holders: how many callers of `registry.replaced` have it replaced now.
    """

    owner: Any
    name: str
    make: Callable[[Function], Any]
    label: Any = None
    now: Stood = attrs.field(init=False)
    first: Stood = attrs.field(init=False)
    is_put: bool = False
    holders: int = 0

    def __attrs_post_init__(self) -> None:
        self.first = self._look_up(_behind(_held_by(self.owner, self.name)))

    @property
    def stood(self) -> tuple[Stood, ...]:
        """Return what the place is known to have held, the latest first."""
        return (self.now,) if self.now is self.first else (self.now, self.first)

    def check(self) -> bool:
        """Look up anew what is there if it has changed since; return whether it has."""
        held = _held_by(self.owner, self.name)
        if held is self.now.theirs:
            if held is not ABSENT or getattr(self.owner, self.name, ABSENT) == self.now.original:
                return False
        elif (held := _behind(held)) is self.now.theirs:
            return False
        if held is self.first.theirs and held is not ABSENT:
            self._stands(self.first)
        else:
            self._look_up(held)
        return True

    def put(self) -> None:
        """Put ours in place."""
        self.check()
        self.is_put = True
        setattr(self.owner, self.name, self.now.ours)

    def take_back(self) -> bool:
        """Put back what was there; return False if somebody else has put something there meanwhile, which stays."""
        was_put, self.is_put = self.is_put, False
        held = _held_by(self.owner, self.name)
        if was_put and any(held is each.theirs for each in self.stood):
            owner = getattr(self.owner, "__qualname__", getattr(self.owner, "__name__", "?"))
            unseen[f"later calls of {owner}.{self.name}"] = _PUT_BACK
        behind = _behind(self.now.theirs if held is self.now.ours else held)
        if behind is ABSENT and held is not ABSENT:
            delattr(self.owner, self.name)
        elif behind is not held:
            setattr(self.owner, self.name, behind)
        return behind is not held or held is self.now.theirs

    def _look_up(self, held: Any) -> Stood:
        of_class = isinstance(held, (staticmethod, classmethod)) and not isinstance(self.owner, ModuleType)
        original: Any = held.__func__ if of_class else getattr(self.owner, self.name, ABSENT)
        replacement = self.make(original)
        if type(replacement) is FunctionType and isinstance(self.owner, ModuleType):
            replacement = stand_in(replacement, original)
        ours = type(held)(replacement) if of_class else replacement
        return self._stands(Stood(held, ours, original, replacement))

    def _stands(self, stood: Stood) -> Stood:
        self.now = stood
        which = id(stood.replacement)
        with contextlib.suppress(TypeError):  # nothing can refer weakly to a property
            mine = weakref.ref(stood.replacement, lambda _: _stand_ins.pop(which, None))
            _stand_ins[which] = Known(mine, weakref.ref(self), stood.theirs, stood.original)
        return stood


class Known(NamedTuple):
    """What is known of a replacement.

    place: its place.
    theirs: what it stands in for there.
    original: the function in ``theirs``.
    """

    replacement: weakref.ref[Any]
    place: weakref.ref[Place]
    theirs: Any
    original: Function


_stand_ins: dict[int, Known] = {}
"""id(replacement) -> what is known of it. By id, as replacements of one function compare equal."""


def layered() -> set[int]:
    """Return the ids of replacements that another place took for its original, as they were in place then."""
    known = _stand_ins.copy().values()
    return {id(each.original) for each in known if _known(each.theirs) is not None}


def own_holders() -> set[int]:
    """Return the ids of replacements, and of the cells and attributes in which they hold what they stand in for.

    A replacement may stand in for another one: for an inherited method that was replaced when this one was made.
    """
    found = set(_stand_ins)
    replacements: list[Any] = [known.replacement() for known in _stand_ins.copy().values()]
    for each in replacements:
        function = each.__call__ if issubclass(type(each), StandIn) else each
        if type(function) is FunctionType:
            found.update(map(id, (vars(each), *(function.__closure__ or ()))))
    return found


def _known(value: Any) -> Known | None:
    return _stand_ins.get(id(value.__func__ if isinstance(value, (staticmethod, classmethod)) else value))


def _is_taken_back(known: Known | None) -> bool:
    return known is not None and not ((place := known.place()) and place.is_put)


def _behind(held: Any) -> Any:
    """Return what a place holds; if that is a replacement already taken back, what the replacement stood in for.

    Somebody may have put such a replacement there again.
    """
    while _is_taken_back(known := _known(held)):
        held = known.theirs  # type: ignore[union-attr]
    return held


def without_ours(function: Any) -> Any:
    """Return the function behind replacements that are taken back now; anything else is returned as it is."""
    while _is_taken_back(known := _known(function)):
        function = known.original  # type: ignore[union-attr]
    return function


def _held_by(owner: Any, name: str) -> Any:
    """Return what the owner's own namespace holds under a name; ABSENT where that is nothing."""
    try:
        return owner.__dict__[name]
    except KeyError:
        return ABSENT


def original_of(function: Any) -> Any:
    """Return the function that a replacement stands in for; anything else is returned as it is."""
    while (known := _known(function)) is not None:
        function = known.original
    return function


def bound_elsewhere(kinds: Iterable[type], owner: type, name: str) -> list[type]:
    """Return which of some classes, and of their bases, hold the owner's function of this name as their own."""
    kinds = list(kinds)
    each = dict(zip(map(id, kinds), kinds, strict=True))  # of thousands of modules, few
    every = chain.from_iterable(kind.__mro__ for kind in each.values())
    bases = {id(base): base for base in every if name in vars(base)}  # by identity: a class may have no hash
    theirs = original_of(getattr(owner, name))
    return [base for base in bases.values() if base is not owner and original_of(vars(base)[name]) is theirs]


def originals_by_id() -> dict[int, Any]:
    """Return a new dict with the original of every replacement, by id(replacement)."""
    return {which: original_of(known.original) for which, known in _stand_ins.copy().items()}


class Holder:
    """What was found to hold a function; putting and taking back are the same exchange in opposite directions."""

    __slots__ = ()
    stood: Stood

    def put(self) -> None:
        """Put the replacement there, if the original still is."""
        self._swap(self.stood.original, self.stood.replacement)

    def take_back(self) -> None:
        """Put the original back, if the replacement still is there."""
        self._swap(self.stood.replacement, self.stood.original)

    def _swap(self, old: Any, new: Any) -> None:
        raise NotImplementedError


@attrs.frozen(eq=False)
class Item(Holder):
    """The item holder[key] of a namespace, a dict or a list."""

    holder: Any = attrs.field(repr=False)
    key: Any
    stood: Stood

    def _swap(self, old: Any, new: Any) -> None:
        try:
            if self.holder[self.key] is old:
                self.holder[self.key] = new
        except (KeyError, IndexError):  # the item is gone: nothing to do
            pass


@attrs.frozen(eq=False)
class Member(Holder):
    """The attribute of a user's class.

    theirs, ours: what the class holds, which may be a static method around the function.
    """

    owner: Any
    name: str
    theirs: Any
    ours: Any

    def put(self) -> None:
        """Put ours there, if theirs still is."""
        self._swap(self.theirs, self.ours)

    def take_back(self) -> None:
        """Put theirs back, if ours still is there."""
        self._swap(self.ours, self.theirs)

    def _swap(self, old: Any, new: Any) -> None:
        if _held_by(self.owner, self.name) is old:
            setattr(self.owner, self.name, new)


@attrs.frozen(eq=False)
class Default(Holder):
    """A default argument of a function: `def block(x, act=F.relu)`.

    key: its index among the positional defaults, or the name of a keyword-only one.
    """

    function: Any
    key: int | str
    stood: Stood

    def _swap(self, old: Any, new: Any) -> None:
        if isinstance(self.key, str):
            named = self.function.__kwdefaults__ or {}
            if named.get(self.key) is old:
                named[self.key] = new
        else:
            values = list(self.function.__defaults__ or ())
            if self.key < len(values) and values[self.key] is old:
                values[self.key] = new
                self.function.__defaults__ = tuple(values)
