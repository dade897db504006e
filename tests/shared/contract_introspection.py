"""A good guest, for every framework: what copies, pickles or imports does not notice the patches, and is not recorded.

Who runs it has the fixture `guest`.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy as early_deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from probe_runtime.patching.places import original_of
from tapping import Recorder

WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": lambda model: copy.deepcopy(model),
    "early deepcopy": lambda model: early_deepcopy(model),
    "deepcopy with a memo": lambda model: copy.deepcopy(model, {}),
    "copy": lambda model: copy.copy(model),
}


@attrs.frozen
class Guest:
    """A framework's patches and what it has to copy.

    patches: made with a tap. owners: whose names they replace to hide the wrappers.
    functions: a module with ``relu`` and ``gelu``, recorded as Functional.relu and Functional.gelu.
    net: make a module with ``act`` (relu) and ``acts`` ([gelu]). weight: a parameter of it. x: what it is called with.
    same: whether two results are equal. copies: ways to copy it, each of which computes the same.
    shallow: whether a copy.copy computes the same.
    """

    patches: Callable[[Recorder], Any]
    owners: tuple[Any, ...]
    functions: ModuleType
    net: Callable[[], Any]
    weight: Callable[[Any], Any]
    x: Any
    same: Callable[[Any, Any], bool]
    copies: tuple[Callable[[Any], Any], ...]
    shallow: bool
    relu: tuple[Any, ...]
    gelu: tuple[Any, ...]

    def holds_originals(self, model: Any) -> bool:
        return (model.act, model.acts[0]) == (self.relu[0], self.gelu[0])


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(guest: Guest, tap: Recorder) -> Iterator[Any]:
    made = guest.patches(tap)
    before, path = [dict(vars(owner)) for owner in guest.owners], list(sys.meta_path)
    yield made
    made.undo()
    assert sys.meta_path == path
    for owner, names in zip(guest.owners, before, strict=True):
        assert [name for name, value in names.items() if vars(owner).get(name) is not value] == []


@pytest.fixture(params=["given", "not given"])
def model(request: pytest.FixtureRequest, guest: Guest, patches: Any, tap: Recorder) -> Iterator[Any]:
    """A model that was built before start, given to start or not; nothing of it is recorded by the guests."""
    made = guest.net()
    patches.apply(*[made] if request.param == "given" else [])
    tap.take()
    yield made
    patches.undo()
    assert (made.act, *made.acts) == (guest.relu[0], guest.gelu[0])[
        : 1 + len(made.acts)
    ]  # a test may empty it


@pytest.mark.parametrize("way", WAYS)
def test_copies_hold_originals(guest: Guest, way: str, model: Any, tap: Recorder) -> None:
    made = WAYS[way](model)
    assert tap.take() == []
    assert original_of(made.act) is guest.relu[0]
    if way != "copy" or guest.shallow:
        assert guest.same(made(guest.x), model(guest.x))
    assert (guest.weight(made) is guest.weight(model)) == (way == "copy")


def test_a_copy_outlives_the_dump(guest: Guest, patches: Any) -> None:
    model = guest.net()
    patches.apply(model)
    copies = [way(model) for way in guest.copies]
    patches.undo()
    for made in copies:
        assert guest.holds_originals(made)
        assert all(guest.holds_originals(way(made)) for way in guest.copies)


def test_pickled_tensors(guest: Guest, patches: Any, tap: Recorder) -> None:
    with patches:
        loaded = pickle.loads(pickle.dumps(guest.x))
    assert guest.same(loaded, guest.x)
    assert tap.calls == []


USERS_MODULE = """
from {functions} import relu, gelu as act
FOUND = relu
TABLE = frozenset([relu, act])
NAMES = {{"relu": relu}}
class Net:
    def __call__(self, x):
        return act(relu(x))
"""


def test_modules_imported_meanwhile(
    guest: Guest, patches: Any, tap: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_late_module.py").write_text(USERS_MODULE.format(functions=guest.functions.__name__))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with patches:
            module = importlib.import_module("a_late_module")
            wrapper = module.relu
            module.Net()(guest.x)
            assert tap.take() == ["Functional.relu", "Functional.gelu"]
            module.NAMES["relu"](guest.x)
            assert tap.take() == ["Functional.relu"]
            assert module.__loader__ is module.__spec__.loader
            assert type(module.__loader__).__module__ == "_frozen_importlib_external"
            assert inspect.getsource(module.Net)
            with pytest.raises(ImportError):
                importlib.import_module("a_late_module_that_is_not_there")
        assert module.relu is module.FOUND is module.NAMES["relu"] is guest.relu[0] is not wrapper
        assert {
            guest.relu[0],
            guest.gelu[0],
        } == module.TABLE  # what it computed from them knows the originals
    finally:
        sys.modules.pop("a_late_module", None)


__all__ = ["model", "patches", "tap", *(name for name in dir() if name.startswith("test_"))]
