"""Keep pickle working while patches are in place: functions and wrappers are written under their public names.

What `pickle.load` and `pickle.loads` give holds the functions themselves, and no wrapper.
"""

import functools
import io
import multiprocessing.reduction
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from .places import Function, original_of
from .stand_in import StandIn
from .switch import muted, quiet


@functools.cache
def naming(base: Any) -> Any:
    """Return a subclass of a Pickler class that finds every function of the framework under its name.

    pickle writes a function as a name, and refuses if the name does not lead to the same object. While a wrapper is
    at the public name, it refuses the original, which a model holds since it was built. So each function is put at
    its name for the microseconds in which pickle looks; putting everything back would miss calls of other threads.
    """

    if not isinstance(base, type):  # a user's own function in its place
        return quiet(base)

    class Kind(type(base)):  # type: ignore[misc]
        # A Pickler made before stays an instance of pickle.Pickler, which is this class now.
        def __instancecheck__(cls, instance: Any) -> bool:
            return super().__instancecheck__(instance) or (cls is Pickler and isinstance(instance, base))

    class Pickler(base, metaclass=Kind):  # type: ignore[misc]
        _moved: tuple[Any, str, Any] | None = None

        def dump(self, obj: Any, /) -> Any:
            try:
                with muted():
                    return super().dump(obj)
            finally:
                self._move_back()

        def reducer_override(self, obj: Any, /) -> Any:
            self._move_back()
            if isinstance(obj, (FunctionType, StandIn)):
                owner, name = _where(obj)
                present = vars(owner).get(name) if owner is not None else obj
                if present is not obj and original_of(present) is original_of(obj):
                    self._moved = owner, name, present
                    setattr(owner, name, obj)
            return NotImplemented

        def _move_back(self) -> None:
            if self._moved is not None:
                (owner, name, present), self._moved = self._moved, None
                setattr(owner, name, present)

    for name in ("__module__", "__qualname__", "__doc__"):
        setattr(Pickler, name, getattr(base, name))
    return Pickler


def _where(function: Any) -> tuple[Any, str]:
    """Return the object and the attribute name where pickle looks for a function; (None, "") without such an object."""
    *way, name = function.__qualname__.split(".")
    owner: Any = sys.modules.get(function.__module__ or "")
    for part in way:
        owner = getattr(owner, part, None)
    return (owner, name) if hasattr(owner, "__dict__") else (None, "")


def dumping(original: Function) -> Function:
    """Return a pickle.dumps that tries the original, and our Pickler where that refuses a function."""

    @functools.wraps(original)
    def dumps(obj: Any, protocol: int | None = None, **options: Any) -> bytes:
        if options.get("buffer_callback") is None:  # a second try would pass the same buffers again
            try:
                with muted():
                    data: bytes = original(obj, protocol, **options)
                    return data
            except pickle.PicklingError as error:
                if not _refuses_a_function(error):
                    raise
        file = io.BytesIO()
        naming(PICKLER)(file, protocol, **options).dump(obj)
        return file.getvalue()

    return dumps


def forking_dumping(original: Function) -> Function:
    """Return a ForkingPickler.dumps (a class method, which feeds the workers of a DataLoader) as `dumping` does."""

    @functools.wraps(original)
    def dumps(cls: Any, obj: Any, protocol: int | None = None) -> Any:
        try:
            with muted():
                return original(cls, obj, protocol)
        except pickle.PicklingError as error:
            if not _refuses_a_function(error):
                raise
        return original(naming(cls), obj, protocol)

    return dumps


def dumping_to_file(original: Function, pickler: Any) -> Function:
    """Return a dump that pickles with `naming` at once: what is in a file already cannot be taken back."""
    if original not in _PYTHONS:
        return quiet(original)

    @functools.wraps(original)
    def dump(obj: Any, file: Any, protocol: int | None = None, **options: Any) -> None:
        naming(pickler)(file, protocol, **options).dump(obj)

    return dump


def _refuses_a_function(error: pickle.PicklingError) -> bool:
    return "not the same object" in str(error)


class OriginalsUnpickler(pickle.Unpickler):
    """Load originals for the names of functions, so that no loaded object holds a wrapper."""

    def find_class(self, module: str, name: str, /) -> Any:
        return original_of(super().find_class(module, name))


def loading(original: Function, opened: Callable[[Any], Any] | None = None) -> Function:
    """Return a load that gives originals. opened: makes a file of what it is given, where that is none."""
    if original not in _PYTHONS:
        return quiet(original)

    @functools.wraps(original)
    def load(file: Any, **options: Any) -> Any:
        with muted():
            return OriginalsUnpickler(file if opened is None else opened(file), **options).load()

    return load


# What ours does itself; a user's own patch of one is called, and not recorded.
_PYTHONS = (pickle.dump, pickle.load, pickle.loads, multiprocessing.reduction.dump)
# The original class: pickle.Pickler is itself replaced while patches are in place.
PICKLER = pickle.Pickler
