"""Look at an optimizer in the last moment before it updates, when every other hook on its step has been called."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim import optimizer as torchs

from probe_torch.compiling import left_out
from probe_torch.optimizer_hooks import KEYS, hooked, take_out


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

    try:
        with (
            hooked(torchs._global_optimizer_pre_hooks, left_out(put_last)),
            hooked(torchs._global_optimizer_post_hooks, left_out(take_away)),
        ):
            yield
    finally:
        for ref in list(placed.values()):
            if (optimizer := ref()) is not None:
                take_out(optimizer._optimizer_step_pre_hooks, key)
