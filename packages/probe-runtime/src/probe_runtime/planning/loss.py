"""Find the loss in what the model of a planned step returned, else sum up its tensors: there is no training loop."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from probe_runtime.patching.switch import muted

T = TypeVar("T")


def loss_in(out: Any, tensor: type[T], flowing: Iterable[T], total: Callable[[T], T]) -> T | None:
    """Return the loss in what a model returned: its attribute ``loss``, or the only tensor where that is one number.

    Else return the sum of all its tensors, which is not recorded; None where none of them needs a gradient.

    tensor: the class of the framework's tensors.
    flowing: the tensors in ``out`` that need a gradient.
    total: returns the sum of a tensor's elements, real and of float32.
    """
    own = getattr(out, "loss", None)
    if isinstance(own, tensor):
        return own
    found: list[Any] = list(flowing)
    if len(found) == 1 and found[0].ndim == 0:
        return found[0]  # type: ignore[no-any-return]
    with muted():
        sums: list[Any] = [total(t) for t in found]
        return sum(sums[1:], sums[0]) if sums else None
