"""A function that was taken from torch while started is the original after stop(), wherever it is kept."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
import torch
import torch.nn.functional as F
from dumping import dumped, opened
from probe_runtime.patching import kept as kept_copies
from probe_runtime.patching import patches, stale_references
from probe_runtime.patching.registry import place, replaced
from probe_runtime.patching.stand_in import stand_in
from probe_torch.patching.wrappers import switch
from torch import nn

RELU = (F.relu, "kept")  # out of reach of the search for names bound early


class Thing:
    def __init__(self) -> None:
        self.act = F.relu


@attrs.define
class Slotted:
    act: Any


class Pair(NamedTuple):
    act: Any
    other: int


class Table(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        raise AssertionError("code of the user's ran")


def closure() -> Callable[[], Any]:
    return closure_of(F.relu)


def closure_of(act: Any) -> Callable[[], Any]:
    return lambda: act


def default() -> Callable[[], Any]:
    def call(act: Any = F.relu) -> Any:
        return act

    return call


def keyword_default() -> Callable[[], Any]:
    def call(*, act: Any = F.relu) -> Any:
        return act

    return call


def in_a_class() -> Any:
    class Layer(nn.Module):
        act = F.relu
        static = staticmethod(F.relu)

    return Layer


def wrapped() -> Any:
    @functools.wraps(F.relu)
    def call(*args: Any) -> Any:
        return args

    return call


#: What a user's program makes while started, and where the function is in it.
HOLDERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 1, 8), lambda m: m.activation),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(4, 1, 8, activation="relu"),
        lambda m: m.activation,
    ),
    "attribute": (Thing, lambda t: t.act),
    "slot": (lambda: Slotted(F.relu), lambda t: t.act),
    "list": (lambda: [1, F.relu], lambda t: t[1]),
    "dict": (lambda: {"relu": F.relu}, lambda t: t["relu"]),
    "dict of a class of the user's": (lambda: Table(relu=F.relu), lambda t: t["relu"]),
    "ordered dict": (lambda: collections.OrderedDict(relu=F.relu), lambda t: t["relu"]),
    "set": (lambda: {F.relu}, lambda t: next(iter(t))),
    "tuple in a list": (lambda: [(F.relu, 1)], lambda t: t[0][0]),
    "named tuple in a list": (lambda: [Pair(F.relu, 1)], lambda t: t[0].act),
    "tuple in a tuple": (lambda: [((F.relu,),)], lambda t: t[0][0][0]),
    "closure": (closure, lambda f: f()),
    "default": (default, lambda f: f()),
    "keyword default": (keyword_default, lambda f: f()),
    "partial": (lambda: functools.partial(F.relu, inplace=False), lambda p: p.func),
    "partial's argument": (lambda: functools.partial(map, F.relu), lambda p: p.args[0]),
    "class": (in_a_class, lambda c: c.act),
    "static method": (in_a_class, lambda c: c.static),
    "getattr in a list": (lambda: [getattr(F, name) for name in ("relu", "gelu")], lambda t: t[0]),
    "wrapped": (wrapped, lambda f: f.__wrapped__),
    "deque": (lambda: collections.deque([F.relu]), lambda d: d[0]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_was_taken_while_started_is_the_original(holder: str, tmp_path: Path) -> None:
    make, look = HOLDERS[holder]
    with opened(tmp_path, level="mix") as debugger:
        debugger.start(nn.Sequential(nn.Linear(2, 2)))
        kept = [make()]
        assert look(kept[0]) is not RELU[0], "this test needs the stand-in"
        debugger.stop()
        assert look(kept[0]) is F.relu is RELU[0]
        debugger.step()


def test_a_bound_method_is_of_the_original(tmp_path: Path) -> None:
    x = torch.ones(2)
    with dumped(tmp_path, level="L1"):
        kept = [x.relu, x.add]
    assert kept == [x.relu, x.add] and torch.equal(kept[1](1), x + 1)


@pytest.mark.parametrize(
    "make", [lambda: nn.TransformerEncoderLayer(4, 1, 8), Thing, lambda: [F.relu, torch.exp]]
)
def test_it_can_be_saved_while_started_and_after(make: Callable[[], Any], tmp_path: Path) -> None:
    def saved(thing: Any) -> list[bytes]:
        file = io.BytesIO()
        torch.save(thing, file)
        return [pickle.dumps(thing), file.getvalue(), pickle.dumps(copy.deepcopy(thing))]

    with opened(tmp_path, level="mix") as debugger:
        debugger.start(nn.Sequential(nn.Linear(2, 2)))
        thing = make()
        while_started = saved(thing)
        debugger.stop()
        after = saved(thing)
        debugger.step()
    for data in (*while_started, *after, *saved(thing)):
        assert b"probe" not in data
    for data in (while_started[0], after[0]):
        found = pickle.loads(data)
        acts = [getattr(found, name, None) for name in ("activation", "act")] + (
            found if type(found) is list else []
        )
        assert RELU[0] in acts


def test_what_cannot_be_changed_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local variable of a function that runs keeps its stand-in, which does what the original does."""
    looked: list[str] = []

    def counted(pairs: Iterable[tuple[Any, Any]]) -> None:
        kept = list(pairs)
        looked.extend(original.__name__ for _, original in kept)
        stale_references.give_back(kept)

    monkeypatch.setattr(kept_copies, "give_back", counted)
    with opened(tmp_path, level="L1") as debugger:
        for round in range(4):
            debugger.start()
            if not round:
                act = F.relu
            debugger.stop()
        debugger.step()
    assert looked == ["relu"]
    assert act is not F.relu and torch.equal(act(torch.ones(2)), torch.ones(2))


def test_one_that_was_kept_is_found_when_it_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it goes from a local variable to a module, nobody holds more stand-ins than before."""
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "PASSED_ON", None, raising=False)
    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        act = F.relu
        debugger.stop()
        assert act is not F.relu, "this test needs the stand-in"
        with debugger.one_step():
            vars(here)["PASSED_ON"] = act
            del act
    assert vars(here)["PASSED_ON"] is F.relu


def test_one_that_was_let_go_is_no_longer_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def strays() -> list[str]:
        return [each.stood.original.__name__ for each in switch.strays]

    monkeypatch.setattr(switch, "strays", [])  # other tests of this process keep some
    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        act = F.relu
        debugger.stop()
        debugger.start()
        debugger.stop()
        assert strays().count("relu") == 1, "this test needs the stand-in"
        del act
        debugger.start()
        debugger.stop()
        debugger.step()
    assert "relu" not in strays()


def test_nothing_is_searched_where_nobody_got_a_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(switch, "strays", [])  # other tests of this process keep some
    gc.collect()
    with opened(tmp_path, level="mix") as debugger:
        for name in ("opened", "place"):
            with monkeypatch.context() as users:
                users.setattr(F, "gelu", lambda x: x)
                debugger.start(nn.Sequential(nn.Linear(2, 2)))
            F.relu(torch.ones(2))
            debugger.register_custom_api(sys.modules[__name__], name)  # tables of ours are made anew
            with monkeypatch.context() as stopping:
                stopping.setattr(patches, "find_in_modules", lambda *a: searched.append("modules") or ())
                stopping.setattr(kept_copies, "give_back", lambda pairs: searched.append("objects"))
                debugger.stop()
            debugger.step()
    assert not searched


def test_a_dict_that_the_garbage_collector_changes_meanwhile() -> None:
    """A weak table loses its entries whenever objects die, also while it is looked through."""

    def old() -> None: ...
    def new() -> None: ...

    holder: dict[Any, Any] = dict.fromkeys(range(3000), old)

    class Dying:
        def __init__(self, key: int) -> None:
            self.key, self.myself = key, self

        def __del__(self) -> None:
            holder.pop(self.key, None)
            if self.key < 2000:
                Dying(self.key + 1)  # in the next collection

    gc.collect()
    Dying(0)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        stale_references.give_back([(old, new)])
    finally:
        gc.set_threshold(*before)
    assert set(holder.values()) == {new}


def test_what_is_kept_is_given_back_and_what_replacements_hold_of_each_other_stays() -> None:
    """One calls itself, and one stands in for a method that was inherited while it was replaced."""
    told: list[str] = []
    kept = []

    class Base:
        def run(self, again: bool = False) -> str:
            return "done"

    class Child(Base):
        pass

    def replacing(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(self: Any, again: bool = False) -> Any:
            told.append(name)
            return run(self) if again else original(self)

        return run

    for _ in range(3):
        with replaced([place(Base, "run", replacing, "base")]):
            kept.append(closure_of(Base.run))
            with replaced([place(Child, "run", replacing, "child")]):
                assert Child().run(again=True) == "done"
        assert told == ["child", "child", "base"]
        told.clear()
        assert [each() for each in kept] == [Base.run] * len(kept)
        assert kept[0]()(Child()) == "done" and not told


class Own:
    """A key of its own hash, which may change, or be none any more."""

    def __init__(self) -> None:
        self.hash: int | None = 1

    def __hash__(self) -> int:
        if self.hash is None:
            raise LookupError
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other


class Peculiar(dict[Any, Any]):
    def __iter__(self) -> Any:
        raise AssertionError("code of the user's ran")

    keys = items = values = __getitem__ = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [dict, Peculiar, collections.OrderedDict])
@pytest.mark.parametrize("changed", [1, 2, None])
def test_a_dict_with_keys_of_the_users_own_hash_keeps_them(kind: Any, changed: int | None) -> None:
    def new() -> None: ...

    old, own, other = stand_in(lambda: None, new), Own(), Own()
    holder = kind({"a": 1, own: 2, old: 3, (old, 1): 4, other: old, "b": old})
    boxes, members = [frozenset([own, old])], {(own, old)}
    own.hash = other.hash = changed
    stale_references.give_back([(old, new)])
    own.hash = other.hash = 1  # where they were put
    assert (own in boxes[0], (own, new) in members) == (True, True)
    keys, values = list(dict.keys(holder)), list(dict.values(holder))
    assert [keys[0], keys[1], keys[4], keys[5]] == ["a", own, other, "b"] and len(keys) == 6
    assert (dict.get(holder, own), dict.get(holder, new), dict.get(holder, (new, 1))) == (2, 3, 4)
    assert values[:4] == [1, 2, 3, 4] and values[5] is new
    if kind is dict:
        assert keys[2] is new and keys[3][0] is new
    assert values[4] is (new if changed == 1 else old)
