"""Find out which module holds which modules and parameters, and which models hold the parameters of an optimizer."""

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Containment:
    """Hold which module held which modules and parameters when this was made.

    Making it passes over all objects of the process once, in 50 to 150 ms. Only a module's class and its own tables
    are read, as a proxy would answer other questions by code of the user's.
    """

    def __init__(
        self, kind: type, modules: str, parameters: str, counts: Callable[[Any], bool] = lambda module: True
    ) -> None:
        """Look at every module there is.

        kind: the class of all modules.
        modules, parameters: the names of the attributes in which a module keeps those inside it, and its parameters.
        counts: returns whether a module counts; others are passed over.
        """
        self._modules: list[Any] = []
        self._above: dict[int, list[Any]] = {}
        self._holders: dict[int, list[Any]] = {}
        for one in gc.get_objects():
            if not issubclass(type(one), kind) or not counts(one):
                continue
            self._modules.append(one)
            names: dict[str, Any] = object.__getattribute__(one, "__dict__")
            for inner in _values(names.get(modules)):
                self._above.setdefault(id(inner), []).append(one)
            for parameter in _values(names.get(parameters)):
                self._holders.setdefault(id(parameter), []).append(one)

    def of_classes(self, names: Sequence[str], made: Sequence[Any]) -> list[Any]:
        """Return the modules of these classes, in the order of the names; in a class, in the order of their making.

        made: the modules whose making was seen; the others were made before.
        """
        order = {id(one): i for i, one in enumerate(made, 1)}
        modules = sorted(self._modules, key=lambda one: order.get(id(one), 0))
        return [one for name in names for one in modules if type(one).__name__ == name]

    def models_of(
        self,
        parameters: Iterable[Any],
        settled: Sequence[Any] = (),
        lately: Sequence[Any] = (),
        called: Any = None,
    ) -> list[Any]:
        """Return the topmost modules that hold these parameters, in the order of the parameters.

        The order of the garbage collector would differ from run to run.

        settled: models that stay where they are while they hold a parameter. What else holds no other parameter, such
            as what a tracer has left, is no model unless it is around the module that is called.
        lately: what this has returned for the same parameters; all of it stays if one of it holds none of them now:
            `functional_call` lends a module other parameters for a call.
        called: the module that is called, if one is.
        """
        trained = self._trained(parameters)
        is_lent = any(id(one) not in trained for one in lately)
        known = lately if is_lent else [one for one in settled if id(one) in trained]
        held = {number for one in known for number in trained.get(id(one), (one, []))[1]}
        around = {id(one) for one in self._around(called)}
        if any(id(one) in around for one in known):
            around.clear()
        tops = [
            (numbers, top)
            for top, numbers in trained.values()
            if id(top) not in self._above and (id(top) in around or not (is_lent or held.issuperset(numbers)))
        ]
        return self._in_places(known, [top for _, top in sorted(tops, key=lambda each: each[0])])

    def _in_places(self, known: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """Return the known models, then the new ones; a known one that is wrapped leaves its place to the wrapper."""
        fresh = {id(one): one for one in new}
        places = [next((one for one in self._around(old) if id(one) in fresh), old) for old in known]
        return list({id(one): one for one in (*places, *new)}.values())

    def _trained(self, parameters: Iterable[Any]) -> dict[int, tuple[Any, list[int]]]:
        """Return the modules that hold some of these parameters, at any depth, with the numbers of the parameters."""
        found: dict[int, tuple[Any, list[int]]] = {}
        around: dict[int, list[Any]] = {}
        for number, parameter in enumerate(parameters):
            for holder in self._holders.get(id(parameter), ()):
                for one in around.get(id(holder)) or around.setdefault(id(holder), self._around(holder)):
                    found.setdefault(id(one), (one, []))[1].append(number)
        return found

    def _around(self, module: Any) -> list[Any]:
        """Return the module, and those that hold it at any depth."""
        found = {id(module): module}
        waiting = [module]
        while waiting:
            fresh = {id(one): one for one in self._above.get(id(waiting.pop()), ()) if id(one) not in found}
            found |= fresh
            waiting += fresh.values()
        return list(found.values())


def _values(table: Any) -> list[Any]:
    return [one for one in list(table.values()) if one is not None] if isinstance(table, dict) else []
