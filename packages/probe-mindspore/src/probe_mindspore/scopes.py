"""Regions of a step that are not the model: the optimizer, printing, reading data, making parameters."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from probe_format.coverage import Coverage
from probe_format.patching.places import Attribute
from probe_format.patching.regions import Regions, found

from probe_mindspore.patches import Patches

__all__ = ["OPTIMIZER", "Scopes"]

OPTIMIZER = "optimizer"

# Calls that are filed under a node.
_NODES = (
    ("mindspore.nn.Optimizer", "__call__", OPTIMIZER),
    ("mindspore.experimental.optim.optimizer.Optimizer", "__call__", OPTIMIZER),
    ("mindspore.experimental.optim.lr_scheduler.LRScheduler", "step", OPTIMIZER),
    ("mindspore.experimental.optim.lr_scheduler.ReduceLROnPlateau", "step", OPTIMIZER),
    *(
        (f"mindspore.amp.{scaler}", name, OPTIMIZER)
        for scaler in ("StaticLossScaler", "DynamicLossScaler")
        for name in ("unscale", "adjust")
    ),
    ("mindspore.amp", "all_finite", OPTIMIZER),
)
# Calls that are left out, and the reason the report gives.
_QUIET = (
    *(
        (kind, name, "printing")
        for kind in ("mindspore.Tensor", "mindspore.Parameter")
        for name in ("__str__", "__repr__", "__format__")
    ),
    *(
        (f"mindspore.dataset.engine.iterators.{kind}", "__next__", "reading data")
        for kind in ("Iterator", "DummyIterator")
    ),
    *(
        ("mindspore.dataset.engine.datasets.Dataset", name, "reading data")
        for name in ("__iter__", "create_tuple_iterator", "create_dict_iterator")
    ),
    ("mindspore.common.initializer.Initializer", "__call__", "making parameters"),
    ("mindspore.Tensor", "init_data", "making parameters"),
    ("mindspore.Parameter", "init_data", "making parameters"),
    ("mindspore.Parameter", "set_data", "making parameters"),
    *(
        ("mindspore.mint.distributed", name, "collectives on objects")
        for name in (
            *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
            *("send_object_list", "recv_object_list", "barrier"),
        )
    ),
)


class Scopes:
    """While entered, `push(node)` and `pop(node)` frame what belongs to a node; quiet regions are not
    recorded.

    Node "optimizer": a call of any optimizer, a learning rate scheduler's step, and what a loss scaler does
    after the gradients. Every push is followed by its pop in the same thread, exceptions or not; a node inside
    itself is pushed once.

    Quiet: printing a tensor, iterating over a Dataset, making and filling parameters, and collectives on
    pickled objects.
    """

    def __init__(self, patches: Patches, push: Callable[[str], None], pop: Callable[[str], None]) -> None:
        self._patches = patches
        self._regions = Regions(push, pop, _never)
        self._places: list[Attribute] = []

    def tell(self, coverage: Coverage) -> None:
        """Count what was left out, by reason."""
        self._regions.tell(coverage)

    def __enter__(self) -> Scopes:
        if not self._places or any(place.current() is not place.raw for place in self._places):
            self._places = [*found(_NODES, self._regions.in_node), *found(_QUIET, self._regions.in_quiet)]
        self._patches.include(self._places)
        self._regions.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._regions.stop()
        self._patches.exclude(self._places)


def _never() -> bool:
    """What is compiled sees the originals (jit_guard.py), so nobody asks while compiling."""
    return False
