"""What holds of the patches of every framework. Who runs it has the fixtures `patches`, `tap` and `surface`."""

from __future__ import annotations

import _thread
import inspect
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
import pytest
from probe_runtime.patching.places import Attribute
from probe_runtime.patching.switch import muted


@attrs.frozen
class Surface:
    """The listed functions of a framework.

    names: (path of the owner, name) -> what it has there now. find: the function of such a pair, None if there is none.
    listed, signed: at least so many names are listed, and so many have a signature.
    functions: a module with ``relu`` and ``tanh``. prefix: of their records. ones: a tensor of a shape.
    two_calls: call two listed functions with a tensor. called: what is recorded of that.
    another: patches of the same functions, with a tap of their own.
    """

    names: Callable[[], dict[tuple[str, str], Any]]
    find: Callable[[str, str], Any]
    listed: int
    signed: int
    functions: ModuleType
    prefix: str
    ones: Callable[..., Any]
    two_calls: Callable[[Any], Any]
    called: tuple[str, str]
    another: Callable[[], Any]


def test_every_listed_name_is_patched_and_restored(surface: Surface, patches: Any) -> None:
    before = surface.names()
    with patches:
        during = surface.names()
        same = [f"{path}.{name}" for (path, name), value in during.items() if value is before[path, name]]
    assert len(before) > surface.listed
    assert sorted(same) == sorted(name for name in patches.missing if name in set(same))
    assert surface.names() == before


def test_apply_that_fails_is_undone(
    surface: Surface, patches: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def put(self: Attribute, put: Any = Attribute.put) -> None:
        nonlocal count
        count += 1
        if count == 700:
            raise KeyboardInterrupt
        put(self)

    monkeypatch.setattr(Attribute, "put", put)
    with pytest.raises(KeyboardInterrupt):
        patches.apply()
    assert not patches.applied
    monkeypatch.undo()
    with surface.another():  # and another can be applied
        pass


def test_an_exception_inside_undoes(patches: Any) -> None:
    with pytest.raises(ZeroDivisionError), patches:
        1 / 0  # noqa: B018
    assert not patches.applied


def test_muted_is_for_one_thread(surface: Surface, patches: Any, tap: Any) -> None:
    x = surface.ones(2)
    names: list[str] = []

    def other() -> None:
        surface.functions.tanh(x)
        names.extend(tap.calls)

    with patches, muted():
        surface.functions.relu(x)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert names == [f"{surface.prefix}.tanh"]
    assert tap.calls == []


def test_signatures_names_and_docs_are_the_same(surface: Surface, patches: Any) -> None:
    def facts() -> dict[tuple[str, str], Any]:
        found = {}
        for path, name in surface.names():
            function = surface.find(path, name)
            try:
                signature: Any = inspect.signature(function)
            except (ValueError, TypeError) as error:
                signature = type(error)
            found[path, name] = signature, getattr(function, "__name__", None), inspect.getdoc(function)
        return found

    before = facts()
    with patches:
        during = facts()
    assert [name for name in before if during[name] != before[name]] == []
    assert sum(isinstance(fact[0], inspect.Signature) for fact in before.values()) > surface.signed


def test_a_thread_with_nothing_below_the_call(surface: Surface, patches: Any) -> None:
    done, names = threading.Event(), []

    def tap(label: Any, original: Any, args: Any, kwargs: Any) -> Any:
        names.append(label.name)
        result = original(*args, **kwargs)
        done.set()
        return result

    patches.tap = tap
    x = surface.ones(2)
    with patches:
        _thread.start_new_thread(surface.functions.relu, (x,))
        assert done.wait(30)
    assert f"{surface.prefix}.relu" in names


def test_threads(surface: Surface, patches: Any, tap: Any) -> None:
    x = surface.ones(4)
    counts = []

    def work() -> None:
        for _ in range(200):
            surface.two_calls(x)
        counts.append(tap.take())

    with patches:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [[*surface.called] * 200] * 8


__all__ = [name for name in dir() if name.startswith("test_")]
