"""Keep the optimizers of a process and find the models that they train; a subclass for each framework says how."""

import gc
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from attrs import define, field

from .containment import Containment


@define(eq=False)
class Scene(ABC):
    """What trains in this process, as the framework's package sees it: the optimizers, and the models that they train.

    A model is the topmost module, by containment, that holds a parameter of an optimizer; or, with ``named``, one of
    these classes. It is looked for again once there is another optimizer, and when an unknown module is called. Once a
    model is called, all that are known stay, as names begin with them; what is around one takes its place if called.

    kinds: the framework's classes of optimizers.
    """

    kinds: ClassVar[tuple[type, ...]]
    named: tuple[str, ...] = ()
    _made: list[weakref.ref[Any]] = field(factory=list)
    _modules: list[weakref.ref[Any]] = field(factory=list)
    _tops: list[weakref.ref[Any]] = field(factory=list)
    _settled: list[weakref.ref[Any]] = field(factory=list)  # the tops when one of them was called
    _roots: dict[int, tuple[weakref.ref[Any], weakref.ref[Any] | None]] = field(factory=dict)
    _news: int = 0  # how often an optimizer has come
    _looked: int = -1  # what that was when the models were looked for

    def __attrs_post_init__(self) -> None:
        for one in gc.get_objects():
            if issubclass(type(one), self.kinds):
                self.add(one)
        if self._made:  # before a call lends a module other parameters
            self._look()

    def add(self, optimizer: Any) -> None:
        """Take an optimizer that has just been made, or that trains more than before."""
        if not self.has(optimizer):
            self._made = [*(ref for ref in self._made if ref() is not None), weakref.ref(optimizer)]
        self._news += 1

    def module_made(self, module: Any) -> None:
        """Take a module that has just been made or copied, to know in which order those of a class are made."""
        if type(module).__name__ in self.named and all(ref() is not module for ref in self._modules):
            self._modules = [*(ref for ref in self._modules if ref() is not None), weakref.ref(module)]

    def has(self, optimizer: Any) -> bool:
        """Return whether this optimizer has been taken."""
        return any(ref() is optimizer for ref in self._made)

    def optimizers(self) -> Sequence[Any]:
        """Return the optimizers that are alive and train something, in the order in which they were made."""
        return [one for one in _live(self._made) if any(True for _ in self.parameters_of(one))]

    def models(self) -> Sequence[Any]:
        """Return the models that the optimizers train, in the optimizers' order, without what only wraps them."""
        if self._looked != self._news:
            self._look()
        return _live(self._tops)

    def root_of(self, module: Any) -> Any:
        """Return the trained model that an outermost call belongs to; None for a loss, a metric, a frozen network."""
        ref, root = self._roots.get(id(module), (None, None))
        if ref is not None and ref() is module and self._looked == self._news:
            top = None if root is None else root()
            if root is None or top is not None:
                return top
        self._look(module)
        found = next((top for top in _live(self._tops) if self.belongs(module, top)), None)
        if found is not None:
            self._settled = self._tops
        self._roots[id(module)] = weakref.ref(module), None if found is None else weakref.ref(found)
        return found

    def _look(self, called: Any = None) -> None:
        news = self._news  # first: what another thread makes meanwhile is looked for the next time
        held = self.held()
        parameters = [p for one in self.optimizers() for p in self.parameters_of(one)]
        if self.named:
            tops = held.of_classes(self.named, _live(self._modules))
        else:
            lately = _live(self._tops) if self._looked == news else []
            tops = held.models_of(parameters, _live(self._settled), lately, called)
        if self._looked != news:
            self._roots.clear()
        self._tops, self._looked = [weakref.ref(top) for top in tops], news

    @abstractmethod
    def parameters_of(self, optimizer: Any) -> Iterable[Any]:
        """Return what an optimizer trains."""

    @abstractmethod
    def held(self) -> Containment:
        """Return which module holds which now."""

    @abstractmethod
    def belongs(self, module: Any, top: Any) -> bool:
        """Return whether an outermost call of a module is a call of this model."""

    @abstractmethod
    def is_training(self, module: Any, root: Any) -> bool:
        """Return whether a module that is called is in training mode, or its model is."""

    @abstractmethod
    def takes_gradients(self) -> bool:
        """Return whether what is computed now can have gradients."""

    @abstractmethod
    def in_backward(self) -> bool:
        """Return whether this thread is inside a backward pass: a checkpoint's recomputation looks like a forward."""

    @abstractmethod
    def after_backward(self, work: Callable[[], None]) -> None:
        """Call ``work`` once the backward pass that this thread is in is over."""

    @abstractmethod
    def steps_taken(self) -> int:
        """Return how many steps the optimizers have taken by their own count; 0 where they do not count."""


def _live(refs: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [one for ref in refs if (one := ref()) is not None]
