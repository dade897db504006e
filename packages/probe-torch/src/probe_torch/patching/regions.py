"""Mark the regions of a step that are not the model: optimizer, gradient clipping, printing, loading data.

Calls in the first two are recorded under a node of their own; those in the others are left out.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.write import Coverage
from probe_runtime.collect import guarded
from probe_runtime.patching import Function, Held, Place, Regions, listening, place
from torch.autograd.profiler import record_function
from torch.optim import optimizer as torchs

from probe_torch.compiling import is_compiling
from probe_torch.optimizer_hooks import hooked

# Calls that are filed under a node.
_NODES = (
    ("torch.nn.utils", "clip_grad_norm_", CLIP_GRAD),
    ("torch.nn.utils", "clip_grad_norm", CLIP_GRAD),
    ("torch.nn.utils", "clip_grad_value_", CLIP_GRAD),
    ("torch.nn.utils", "clip_grads_with_norm_", CLIP_GRAD),
    ("torch.nn.utils", "get_total_norm", CLIP_GRAD),
    ("torch.amp.GradScaler", "unscale_", OPTIMIZER),
    ("torch.amp.GradScaler", "step", OPTIMIZER),
    ("torch.amp.GradScaler", "update", OPTIMIZER),
)
# Calls that are left out, and the reason the report gives.
_QUIET = (
    ("torch._tensor_str", "_str", "printing"),
    ("torch.Tensor", "__format__", "printing"),
    ("torch.utils.data.dataloader.DataLoader", "__iter__", "loading data"),
    ("torch.utils.data.dataloader._BaseDataLoaderIter", "__next__", "loading data"),
    *(
        (module, name, "collectives on objects")
        for module in ("torch.distributed", "torch.distributed.distributed_c10d")
        for name in (
            *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
            *("send_object_list", "recv_object_list", "barrier", "monitored_barrier"),
        )
    ),
)


_REGIONS = Regions(is_compiling)


def regions() -> list[Place]:
    """Return the places of the regions, which are replaced together with the recorded functions."""
    return _REGIONS.places(_NODES, _QUIET)


@contextmanager
def step_regions(
    push: Callable[[str], None], pop: Callable[[str], None], coverage: Coverage
) -> Iterator[None]:
    """Enclose what belongs to a node in `push(node)` and `pop(node)`, and leave out quiet regions, while this is open.

    Node "optimizer": step and zero_grad of every optimizer, and what a GradScaler does around them.
    Node "clip_grad": torch.nn.utils.clip_grad_*.
    Quiet: printing a tensor, DataLoader, and collectives on pickled objects.

    Every push is followed by its pop in the same thread, exceptions or not; a node inside itself is pushed
    once. The closure that LBFGS and others call in their step runs the user's model: the open nodes are popped
    before it and pushed again after it.
    """
    # No optimizer class is patched, because a learning rate scheduler keeps the step that it finds in an optimizer.
    opens, closes = partial(_REGIONS.opens, OPTIMIZER), partial(_REGIONS.closes, OPTIMIZER)
    before_step = guarded("an optimizer", "its closure", _before_step)
    with (
        _REGIONS.started(push, pop, coverage),
        watched_regions(("Optimizer.step#", "Optimizer.zero_grad#"), opens, closes),
        hooked(torchs._global_optimizer_pre_hooks, before_step),
    ):
        yield


def _before_step(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the arguments with a closure that leaves the region while it runs; None if there is no closure."""
    if "closure" in kwargs and callable(kwargs["closure"]):
        return args, {**kwargs, "closure": _REGIONS.outside(kwargs["closure"])}
    if len(args) > 1 and callable(args[1]):
        return (args[0], _REGIONS.outside(args[1]), *args[2:]), kwargs
    return None


def watched_regions(names: tuple[str, ...], begin: Callable[[], bool], end: Callable[[], None]) -> Held:
    """Call ``begin()`` and ``end()`` around regions that torch's profiler has a name for, until the result is undone.

    names: how the names of the regions begin, as in ``Optimizer.step#``.
    begin: returns whether ``end`` is wanted for this region.
    """
    places = [place(record_function, "__enter__", _entering), place(record_function, "__exit__", _leaving)]
    return listening(_listening, _Listener(names, begin, end), places)


@define(eq=False)
class _Listener:
    names: tuple[str, ...]
    begin: Callable[[], bool]
    end: Callable[[], None]
    entered: dict[int, Any] = field(factory=dict)
    """The regions that began here: start() and stop() may be called from inside a step."""


_listening: list[_Listener] = []


def _entering(original: Function) -> Function:
    @functools.wraps(original)
    def enter(region: Any) -> Any:
        result = original(region)
        for each in _listening:  # also one that an earlier one's begin() adds, as it may start the dump
            if region.name.startswith(each.names) and id(region) not in each.entered and each.begin():
                each.entered[id(region)] = region
        return result

    return enter


def _leaving(original: Function) -> Function:
    @functools.wraps(original)
    def leave(region: Any, *error: Any) -> Any:
        try:
            for each in _listening[::-1]:
                if each.entered.pop(id(region), None) is not None:
                    each.end()
        finally:
            result = original(region, *error)
        return result

    return leave
