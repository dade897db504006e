"""What holds of the patches of every framework. Who runs it has the fixtures `patches`, `tap` and `surface`."""

from __future__ import annotations

import _thread
import collections
import copy
import functools
import gc
import inspect
import sys
import threading
import time
import tracemalloc
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest
from probe_format.errors import UsageError
from probe_runtime.patching import registry
from probe_runtime.patching.places import unseen
from probe_runtime.patching.switch import muted
from tapping import identities


@attrs.frozen
class Surface:
    """The listed functions of a framework.

    names: (path of the owner, name) -> what it has there now. find: the function of such a pair, None if there is none.
    listed, signed: at least so many names are listed, and so many have a signature.
    functions: a module with ``relu`` and ``tanh``. prefix: of their records. ones: a tensor of a shape.
    two_calls: call two listed functions with a tensor. called: what is recorded of that.
    activations: a module with ``relu``, ``gelu`` and ``silu``, recorded as Functional.relu and so on.
    another: patches of the same functions, with a tap of their own. none: patches of no function, with a tap.
    net: make a module whose call uses ``act`` (gelu), ``table["relu"]`` (relu) and each of ``acts``.
    net_input: what it is called with. net_calls: the names of these calls.
    users_file: a user's module with ACTIVATIONS["relu"], STACK[0], block(x, act=..., *, last=...) and a class Layer
    with ``act``, ``norm`` and __call__(x, act=...), all of which are listed functions; late() returns another.
    users_calls: what is recorded of all of them.
    callers: a file of the framework, below the folder it is installed in -> whether a call from there is the user's.
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
    activations: ModuleType
    another: Callable[[], Any]
    none: Callable[[Any], Any]
    net: Callable[[], Any]
    net_input: Callable[[], Any]
    net_calls: list[str]
    users_file: str
    users_calls: list[str]
    callers: dict[str, bool]

    @property
    def relu(self) -> str:
        """The name of a call of ``functions.relu``."""
        return f"{self.prefix}.relu"


@contextmanager
def users_module(file: str | None = None) -> Iterator[Any]:
    """An imported module of the user's."""
    user = ModuleType("a_users_module")
    if file is not None:
        user.__file__ = file
    sys.modules["a_users_module"] = user
    try:
        yield user
    finally:
        del sys.modules["a_users_module"]


def test_every_listed_name_is_patched_and_restored(surface: Surface, patches: Any) -> None:
    before = surface.names()
    with patches:
        during = surface.names()
        same = [f"{path}.{name}" for (path, name), value in during.items() if value is before[path, name]]
    assert len(before) > surface.listed
    assert sorted(same) == sorted(name for name in patches.missing if name in set(same))
    assert identities(surface.names()) == identities(before)


def test_apply_that_fails_is_undone(surface: Surface, patches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_half(table: registry.PlaceTable, kept: object, taken: object = None) -> None:
        for place in table.places[: len(table.places) // 2]:
            place.put()
        raise KeyboardInterrupt

    monkeypatch.setattr(registry.PlaceTable, "put", put_half)
    with pytest.raises(KeyboardInterrupt):
        patches.apply()
    assert not patches.applied
    monkeypatch.undo()
    with surface.another():  # and another can be applied
        pass


def test_no_module_is_held(patches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python clears as it exits must go then: MindSpore's Cells wrote errors as they went later."""
    module = ModuleType("of_the_user")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "of_the_user", module)
        with patches:
            pass
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None


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
        surface.two_calls(x)  # what a first call imports has the originals meanwhile, in every thread
        tap.take()
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == [[*surface.called] * 200] * 8


def test_results_and_errors_are_the_originals(surface: Surface, patches: Any) -> None:
    marker, x = object(), surface.ones(2)
    patches.tap = lambda label, original, args, kwargs: marker
    with patches:
        assert surface.functions.relu(x) is marker
        assert x + 1 is marker
    with pytest.raises(TypeError) as plain:
        surface.functions.relu("no tensor")
    patches.tap = lambda label, original, args, kwargs: original(*args, **kwargs)
    with patches, pytest.raises(TypeError) as wrapped:
        surface.functions.relu("no tensor")
    assert str(wrapped.value).splitlines()[:3] == str(plain.value).splitlines()[:3]


def test_names_bound_early_by_a_user(surface: Surface, patches: Any, tap: Any) -> None:
    x = surface.ones(2)
    with users_module() as user:
        user.relu, user.squash = surface.functions.relu, surface.functions.tanh
        before = dict(vars(user))
        with patches:
            user.relu(x), user.squash(x)
        assert tap.calls == [surface.relu, f"{surface.prefix}.tanh"]
        assert identities(vars(user)) == identities(before)


def test_what_a_users_file_holds(surface: Surface, patches: Any, tap: Any, tmp_path: Path) -> None:
    """Tables of activations, attributes of classes and default arguments."""
    x = surface.ones(2, 2)
    with users_module(str(tmp_path / "a_users_module.py")) as user:
        exec(surface.users_file, vars(user))
        layer = user.Layer

        def held() -> list[Any]:
            table = [user.ACTIVATIONS["relu"], user.STACK[0], user.block.__kwdefaults__["last"]]
            defaults = [*user.block.__defaults__, *layer.__call__.__defaults__]
            return [*table, *defaults, vars(layer)["act"], vars(layer)["norm"]]

        before = held()
        late = user.late()
        with patches:
            user.ACTIVATIONS["relu"](x), user.STACK[0](x), user.block(x), layer()(x), layer.norm(x)
            assert not any(a is b for a, b in zip(held(), before, strict=True))
            user.ACTIVATIONS["late"] = user.late()
            assert user.ACTIVATIONS["late"] is not late
    assert all(a is b for a, b in zip(held(), before, strict=True))
    assert user.ACTIVATIONS["late"] is late  # bound while the wrapper stood there
    assert tap.calls == surface.users_calls


class Table(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("code of the user's ran")


#: What makes a table of the keys and values given, whose keys are functions.
TABLES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "dict": dict,
    "dict of a class of the user's": Table,
    "ordered dict": collections.OrderedDict,
    "default dict": lambda items: collections.defaultdict(int, items),
    "counter": collections.Counter,
    "chain map": lambda items: collections.ChainMap(dict(items)),
    "weak keys": weakref.WeakKeyDictionary,
    "read-only": lambda items: types.MappingProxyType(dict(items)),
}
SETS: dict[str, Callable[[Any], Any]] = {
    kind.__name__: kind for kind in (set, frozenset, list, tuple, collections.deque, weakref.WeakSet)
}


def test_a_table_made_before_is_keyed_by_what_stands_in(surface: Surface, patches: Any) -> None:
    """A table of every listed function; what stands there meanwhile is one function in it, under the same key."""
    names = [name for name in surface.names() if surface.find(*name) is not None]
    number: dict[Any, int] = {}
    before = [number.setdefault(surface.find(*name), len(number)) for name in names]
    made = [make(number) for make in TABLES.values() if make is not weakref.WeakKeyDictionary]
    with patches:
        for table in made:
            assert [table[surface.find(*name)] for name in names] == before
        meanwhile = {surface.find(*name): name for name in names}
        assert len(meanwhile) == len(number) == len(meanwhile | number)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_keyed_by_functions(surface: Surface, patches: Any, kind: str) -> None:
    """Made before, or filled meanwhile: the function is found under its name, before, meanwhile and after."""
    functions, make = surface.functions, TABLES[kind]
    relu, tanh = functions.relu, functions.tanh
    before = make({relu: 1, tanh: 2})
    with patches:
        assert functions.relu is not relu, "this test needs the stand-in"
        assert (before[functions.relu], before[functions.tanh], before.get(functions.exp)) == (1, 2, None)
        more = {} if kind == "weak keys" else {"other": 3}
        meanwhile = make({functions.tanh: 2, **more, functions.relu: 1})
        if kind == "ordered dict":
            meanwhile.move_to_end(functions.tanh)
        order = list(meanwhile)
        assert meanwhile[relu] == 1
    for table in (before, meanwhile):
        assert (table[functions.relu], table[functions.tanh]) == (1, 2)
    assert list(meanwhile) == order
    if kind != "weak keys":
        assert {id(key) for key in meanwhile} == {id(key) for key in (relu, tanh, *more)}


@pytest.mark.parametrize("kind", SETS)
def test_a_collection_of_functions(surface: Surface, patches: Any, kind: str) -> None:
    functions, make = surface.functions, SETS[kind]
    relu = functions.relu
    before = make([relu])
    with patches:
        meanwhile = [make([functions.relu])]
        assert functions.relu is not relu, "this test needs the stand-in"
        assert functions.relu in before and relu in meanwhile[0] and functions.tanh not in before
    assert functions.relu in meanwhile[0]
    assert kind == "WeakSet" or all(function is relu for function in meanwhile[0])


def test_a_cache_of_the_users_is_keyed_by_functions(surface: Surface, patches: Any) -> None:
    asked: list[str] = []

    @functools.cache
    def answer(function: Any) -> str:
        asked.append(function.__name__)
        return f"about {function.__name__}"

    for _ in range(2):
        answer(surface.functions.relu)
        with patches:
            answer(surface.functions.relu), answer(surface.functions.tanh)
        answer(surface.functions.tanh)
    assert asked == ["relu", "tanh"]


def test_a_function_that_stands_in_has_the_kind_of_the_original(surface: Surface, patches: Any) -> None:
    """What inspects a function finds the same; what a class holds is bound to its instances as before."""

    def facts(function: Any) -> list[Any]:
        asked = [inspect.isfunction, inspect.isbuiltin, inspect.ismethoddescriptor, inspect.isroutine, repr]
        asked += [
            inspect.iscoroutinefunction,
            lambda f: getattr(f, "__code__", None),
            lambda f: copy.copy(f) == f,
        ]
        return [ask(function) for ask in asked]

    def bound(function: Any) -> bool:
        if not (inspect.isfunction(function) or inspect.isbuiltin(function)):
            return True  # a method of a class in C takes no other instance
        return inspect.ismethod(type("Holder", (), {"act": function})().act)

    names = [name for name in surface.names() if inspect.isroutine(surface.find(*name))]
    before = {name: (facts(surface.find(*name)), bound(surface.find(*name))) for name in names}
    assert len(names) > surface.signed
    with patches:
        for name in names:
            assert (facts(surface.find(*name)), bound(surface.find(*name))) == before[name], name


def test_functions_held_by_a_model(surface: Surface, patches: Any, tap: Any) -> None:
    model = surface.net()
    acts = model.acts
    held = [model.act, *model.acts, *model.table.values()]
    patches.apply(model)
    model(surface.net_input())
    model.late = surface.activations.silu
    patches.undo()
    wanted = surface.net_calls
    assert [name for name in tap.take() if name in wanted][: len(wanted)] == wanted
    assert all(a is b for a, b in zip(held, [model.act, *model.acts, *model.table.values()], strict=True))
    assert model.acts is acts
    assert model.late is surface.activations.silu  # bound while the wrapper stood there


def test_a_wrapper_kept_does_what_the_original_does(surface: Surface, patches: Any, tap: Any) -> None:
    original, holder = surface.functions.relu, []
    with patches:
        holder.append((surface.functions.relu,))
        kept = surface.functions.relu  # a local variable is out of reach
    assert holder[0][0] is original is not kept
    x = -surface.ones(3)
    assert bool((kept(x) == 0).all())
    assert tap.calls == []


def test_what_a_user_puts_in_place_meanwhile_stays(surface: Surface, patches: Any, tap: Any) -> None:
    functions: Any = surface.functions
    original = functions.relu
    try:
        with patches:
            of_the_user = functions.relu = lambda x: "mine"
            with patches.suspended():
                assert functions.relu is of_the_user
            assert functions.relu is of_the_user
        assert functions.relu is of_the_user
        # It is what the next dump sees and gives back.
        with patches:
            assert functions.relu(None) == "mine"
            assert tap.calls == [surface.relu]
        assert functions.relu is of_the_user
    finally:
        functions.relu = original


def test_nesting(surface: Surface, patches: Any, tap: Any) -> None:
    x = surface.ones(1)
    with patches:
        with patches:
            pass
        surface.functions.relu(x)
    assert tap.calls == [surface.relu]
    patches.undo()
    assert not patches.applied


def test_one_at_a_time(surface: Surface, patches: Any) -> None:
    other = surface.another()
    with patches, pytest.raises(UsageError, match="another debugger"):
        other.apply()
    assert not other.applied


def test_suspended_is_for_all(surface: Surface, patches: Any, tap: Any) -> None:
    model, x = surface.net(), surface.ones(2)
    relu, gelu = (surface.functions.relu, "kept"), (surface.activations.gelu, "kept")
    with users_module() as user:
        user.relu = surface.functions.relu
        patches.apply(model)
        with patches.suspended(), patches.suspended():
            assert surface.functions.relu is user.relu is relu[0]
            assert model.act is surface.activations.gelu is gelu[0]
        assert surface.functions.relu is user.relu is not relu[0]
        assert model.act is surface.activations.gelu is not gelu[0]
        user.relu(x)
        assert tap.calls == [surface.relu]
        with patches.suspended():  # undone within a suspension, it does not come back
            patches.undo()
        assert surface.functions.relu is user.relu is relu[0]


def test_other_threads_that_run_while_suspended_are_noted(surface: Surface, patches: Any) -> None:
    """What they call then is not recorded. One that waits is not noted, once it has come to wait."""
    may_run, ran, may_end = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        may_run.wait()
        surface.functions.relu(surface.ones(1))
        ran.set()
        may_end.wait()

    def noted(run: Callable[[], object]) -> list[str]:
        unseen.clear()
        with patches.suspended("as it was tested"), patches.suspended("as it was nested"):
            run()
        return [*unseen]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with patches:
            for _ in range(100):  # a busy machine may let it come to wait late
                if not (said := noted(bool)):
                    break
                time.sleep(0.02)
            assert said == []
            assert noted(lambda: (may_run.set(), ran.wait())) == ["calls of other threads as it was tested"]
    finally:
        for event in (may_run, may_end):
            event.set()
        thread.join()
        unseen.clear()


@pytest.mark.parametrize("before", [True, False])
def test_functions_of_the_users_own(patches: Any, tap: Any, before: bool) -> None:
    class Space:
        @staticmethod
        def still(x: Any) -> Any:
            return x

        @classmethod
        def of(cls, x: Any) -> Any:
            return cls, x

        def method(self, x: Any) -> Any:
            return x

    module: Any = ModuleType("a_users_ops")
    kernel = module.kernel = lambda x: x
    module.Space, raw = Space, dict(vars(Space))
    if not before:
        patches.apply()
    patches.add(module, "kernel")
    patches.add(module, "kernel")
    patches.add(module.Space, "still", "Mine")
    patches.add(module, "Space.of", "Mine")
    patches.add(module, "Space.method", "Mine")
    if before:
        assert module.kernel is kernel
        patches.apply()
    assert module.kernel(1) == Space.still(1) == Space().still(1) == Space().method(1) == 1
    assert Space.of(1) == (Space, 1)
    assert tap.take() == ["a_users_ops.kernel", "Mine.still", "Mine.still", "Mine.method", "Mine.of"]
    patches.remove(module, "kernel")
    registered = r"a_users_ops\.nothing was not registered; registered are: Space\.still"
    with pytest.raises(UsageError, match=registered):
        patches.remove(module, "nothing")
    module.kernel(1)
    assert tap.take() == [] and module.kernel is kernel
    patches.undo()
    assert dict(vars(Space)) == raw


def test_listed_names_are_not_patched_twice(surface: Surface, patches: Any, tap: Any) -> None:
    x = surface.ones(1)
    with patches:
        patches.add(surface.functions, "relu", "Mine")
        surface.functions.relu(x)
        patches.remove(surface.functions, "relu")
        surface.functions.relu(x)
    assert tap.calls == ["Mine.relu", surface.relu]


def test_a_function_that_is_not_there(surface: Surface, patches: Any) -> None:
    name = surface.functions.__name__.replace(".", r"\.")
    with pytest.raises(UsageError, match=rf"{name}\.rellu.*did you mean relu"):
        patches.add(surface.functions, "rellu")
    with pytest.raises(UsageError, match="no such function"):
        patches.add(SimpleNamespace(__name__="x"), "a.b")


def test_a_dump_of_many_steps_does_not_grow(surface: Surface, patches: Any) -> None:
    model = surface.net()
    for _ in range(3):
        patches.apply(model)
        surface.functions.relu(surface.ones(1))
        patches.undo()
    tracemalloc.start()
    sizes = []
    for steps in (3, 5, 5):  # what one start makes once and keeps, however large, is in all
        for _ in range(steps):
            patches.apply(model)
            patches.undo()
        gc.collect()  # what is held for good, whenever the collector ran last
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    # Bytes in 5 steps: what grows does so in both, where a dict that finds no free entry is made anew in one.
    assert min(sizes[1] - sizes[0], sizes[2] - sizes[1]) < 5_000


def test_no_names_is_fine(surface: Surface, tap: Any) -> None:
    patches, relu = surface.none(tap), surface.functions.relu
    with patches:
        assert surface.functions.relu is relu
    assert patches.missing == {}


def test_whose_call_it_is(surface: Surface, patches: Any, tap: Any) -> None:
    check_whose_call_it_is(surface, patches, tap)


def check_whose_call_it_is(surface: Surface, patches: Any, tap: Any, *between: Any) -> None:
    """Call a function from each of the files. between: functions that the call goes through, each given the next."""
    installed = Path(inspect.getfile(sys.modules[surface.functions.__name__.partition(".")[0]])).parent.parent
    x = surface.ones(2)
    for file, seen in surface.callers.items():
        space: dict[str, Any] = {"__name__": "a_name"}
        exec(compile("def call(f, *args): return f(*args)", str(installed / file), "exec"), space)
        with patches:
            for _ in range(2):
                space["call"](*between, surface.activations.relu, x)
        assert tap.take() == ["Functional.relu"] * 2 * seen, file


__all__ = [name for name in dir() if name.startswith("test_")]
