"""Find out which module holds which, and which holds a parameter."""

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Containment:
    """What held what when this was made: one pass over the objects of the process, which takes 50 to 150 ms.

    A module's own tables are read, and its class, as a proxy's other answers run code of the user's.
    """

    def __init__(
        self, kind: type, modules: str, parameters: str, counts: Callable[[Any], bool] = lambda module: True
    ) -> None:
        """Look at every module there is.

        kind: the class of all modules.
        modules, parameters: the names of the attributes in which a module keeps those inside it, and its parameters.
        counts: returns whether a module is one that holds others, or is to be passed over.
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

    def tops(self, module: Any) -> list[Any]:
        """Return the topmost modules around a module; itself where none holds it."""
        found: dict[int, Any] = {}
        waiting, seen = [module], set[int]()
        while waiting:
            one = waiting.pop()
            if id(one) not in seen:
                seen.add(id(one))
                above = self._above.get(id(one), [])
                waiting += above
                if not above:
                    found[id(one)] = one
        return list(found.values())

    def of_classes(self, names: Sequence[str]) -> list[Any]:
        """Return the modules of these classes, in the order of the names."""
        return [one for name in names for one in self._modules if type(one).__name__ == name]

    def models_of(self, parameters: Iterable[Any]) -> list[Any]:
        """Return the topmost modules that hold these parameters, in the order of the parameters."""
        holders = {id(one): one for p in parameters for one in self._holders.get(id(p), ())}
        return list({id(top): top for one in holders.values() for top in self.tops(one)}.values())


def _values(table: Any) -> list[Any]:
    return [one for one in list(table.values()) if one is not None] if isinstance(table, dict) else []
