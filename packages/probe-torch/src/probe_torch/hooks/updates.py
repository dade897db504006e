"""Look at an optimizer in the last moment before it updates, when every other hook on its step has been called."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim import optimizer as torchs

from probe_torch.compiling import left_out

#: The keys of our hooks among others: torch numbers those from 0 up.
KEYS = iter(range(-1, -(1 << 62), -1))


@contextmanager
def before_updates(look: Callable[..., None]) -> Iterator[None]:
    """Call ``look`` with each optimizer when its gradients are what the update gets, while this is open.

    look: also takes the arguments and the keywords of the optimizer's step.

    torch calls the hooks on all optimizers before an optimizer's own, of which one may clip. So our hook on all
    optimizers puts ``look`` behind the optimizer's own hooks at each step, and takes it away after the step.
    """
    key = next(KEYS)
    placed: dict[int, weakref.ref[Any]] = {}

    ours = left_out(look)

    def take_away(optimizer: Any, *_: Any) -> None:
        placed.pop(id(optimizer), None)
        optimizer._optimizer_step_pre_hooks.pop(key, None)

    def put_last(optimizer: Any, *_: Any) -> None:
        take_away(optimizer)  # a step that raised has left it there
        optimizer._optimizer_step_pre_hooks[key] = ours
        placed[id(optimizer)] = weakref.ref(optimizer)

    handles = [
        torchs.register_optimizer_step_pre_hook(left_out(put_last)),
        torchs.register_optimizer_step_post_hook(left_out(take_away)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for ref in list(placed.values()):
            if (optimizer := ref()) is not None:
                take_away(optimizer)
