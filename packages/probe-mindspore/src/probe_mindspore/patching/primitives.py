"""Record calls of the Primitives that a model's Cells hold as attributes, as Primitive.{attribute}.{Class}.

mindspore.ops has some Primitives as public names too (`ops.scatter_nd_update`). They must not become functions, so
their calls from the user's files are recorded in the same way; their records are named as those of functions.
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mindspore import nn, ops
from probe_runtime.patching import Apis, Function, Label, Place
from probe_runtime.patching import thread as _thread

from .callers import belongs_to_model, dataset_thread
from .wrappers import switch

Labels = dict[int, tuple[ops.Primitive, Label]]


def modules_of(model: Any) -> Iterator[Any]:
    """Yield the model and every Cell inside it, or every Module of a mindtorch model."""
    if isinstance(model, nn.Cell):
        return (cell for _, cell in model.cells_and_names())
    return iter(model.modules())


def public_primitives(apis: Apis) -> Labels:
    """Return id(primitive) -> (the primitive, the label of its calls) for the listed names that are Primitives."""
    found = ((getattr(ops, api.name, None), api) for api in apis if api.owners == ("mindspore.ops",))
    return {id(p): (p, Label(a.prefix, a.api, a.composite)) for p, a in found if isinstance(p, ops.Primitive)}


def labels_of(models: Sequence[Any]) -> Labels:
    """Return id(primitive) -> (the primitive, the label of its calls).

    The label has the attribute under which the primitive is found first; for one in a list, tuple or dict, the
    attribute that holds the container.
    """
    labels: Labels = {}
    for model in models:
        for cell in modules_of(model):
            for name, value in list(vars(cell).items()):
                if name == "_primitives":  # MindSpore's own table of the same primitives
                    continue
                for primitive in _primitives(value):
                    label = Label("Primitive", f"{name}.{type(primitive).__name__}")
                    labels.setdefault(id(primitive), (primitive, label))
    return labels


def places_in(public: Labels, models: Sequence[Any]) -> list[Place]:
    """Return the `__call__` of the classes of these models' primitives and of the public ones, to be replaced.

    The class is patched, never the instance: its type, attributes, copies and pickles do not change. A call of any
    other primitive costs one look-up in a dict.
    """
    labels = labels_of(models)
    each = (*labels.values(), *public.values())
    definers = (next(c for c in type(p).__mro__ if "__call__" in vars(c)) for p, _ in each)
    return [
        Place(owner, "__call__", lambda f: _calling(f, labels, public)) for owner in dict.fromkeys(definers)
    ]


def _primitives(value: Any) -> Iterator[ops.Primitive]:
    if isinstance(value, ops.Primitive):
        yield value
    elif type(value) in (list, tuple, dict):
        for item in value.values() if type(value) is dict else value:
            if isinstance(item, ops.Primitive):
                yield item


def _calling(original: Function, labels: Labels, public: Labels) -> Function:
    get, get_public = labels.get, public.get

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        tap = switch.tap
        if tap is None or _thread.muted or dataset_thread.active:
            return original(self, *args, **kwargs)
        known = get(id(self))
        if known is None:
            known = get_public(id(self))
            if known is None or not belongs_to_model(sys._getframe(1), users_only=True):
                return original(self, *args, **kwargs)
        return tap(known[1], functools.partial(original, self), args, kwargs)

    return call
