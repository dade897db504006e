"""Regions of a step that are not the model: the optimizer, printing, reading data, making parameters."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from probe_format.write import Coverage
from probe_runtime.collect import sheltered
from probe_runtime.patching import Attribute, Function, Regions, found, resolve_owner

from probe_mindspore.module_kind import source_of_torch, torch_on_mindspore

from .patches import Patches

__all__ = ["CLIP_GRAD", "OPTIMIZER", "StepRegions"]

OPTIMIZER = "optimizer"
CLIP_GRAD = "clip_grad"

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
# The same of a torch that stands on MindSpore. Its optimizers call hooks.
_TORCH_NODES = (
    ("torch.nn.utils", "clip_grad_norm_", CLIP_GRAD),
    ("torch.nn.utils", "clip_grad_value_", CLIP_GRAD),
    *(("torch.amp.GradScaler", name, OPTIMIZER) for name in ("unscale_", "step", "update")),
)
_TORCH_QUIET = (
    ("torch.utils.data.dataloader.DataLoader", "__iter__", "reading data"),
    ("torch.utils.data.dataloader._BaseDataLoaderIter", "__next__", "reading data"),
)

Rows = list[tuple[str, str, str]]


class StepRegions:
    """While entered, `push(node)` and `pop(node)` frame what belongs to a node; quiet regions are not
    recorded.

    Node "optimizer": a call of any optimizer, a learning rate scheduler's step, and what a loss scaler does
    after the gradients. Node "clip_grad": torch.nn.utils.clip_grad_* of a torch that stands on MindSpore. Every
    push is followed by its pop in the same thread, exceptions or not (a step of such a torch's optimizer that
    raises: when collecting stops); a node inside itself is pushed once.

    Quiet: printing a tensor, iterating over a Dataset, making and filling parameters, and collectives on
    pickled objects.
    """

    def __init__(self, patches: Patches, push: Callable[[str], None], pop: Callable[[str], None]) -> None:
        self._patches = patches
        self._regions = Regions(push, pop, _never)
        self._places: list[Attribute] = []
        self._hooks: list[Any] = []

    def count_left_out(self, coverage: Coverage) -> None:
        """Count what was left out, by reason."""
        self._regions.count_left_out(coverage)

    def __enter__(self) -> StepRegions:
        if not self._places or any(place.current() is not place.raw for place in self._places):
            nodes, quiet = _rows()
            self._places = [
                *found(nodes, _sheltered(self._regions.in_node)),
                *found(quiet, _sheltered(self._regions.in_quiet)),
            ]
        self._patches.include(self._places)
        self._regions.start()
        self._hooks = _step_hooks(self._regions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._regions.stop()
        self._patches.exclude(self._places)


def _rows() -> tuple[Rows, Rows]:
    """The nodes, and what is left out, of MindSpore and of a torch that stands on it."""
    if torch_on_mindspore() is None:
        return [*_NODES], [*_QUIET]
    nodes, quiet = (
        [(source_of_torch(owner), name, about) for owner, name, about in rows]
        for rows in (_TORCH_NODES, _TORCH_QUIET)
    )
    return [*_NODES, *nodes], [*_QUIET, *quiet]


def _step_hooks(regions: Regions) -> list[Any]:
    """On the steps of every optimizer of a torch that stands on MindSpore.

    A learning rate scheduler keeps the step that it found in the optimizer itself, so a patched class would not
    be asked.
    """
    optimizers: Any = None
    if torch_on_mindspore() is not None:
        optimizers = resolve_owner(source_of_torch("torch.optim.optimizer"))
    if not hasattr(optimizers, "register_optimizer_step_post_hook"):
        return []

    def before(*of_the_step: Any) -> None:
        regions.opens(OPTIMIZER)

    def after(*of_the_step: Any) -> None:
        regions.closes(OPTIMIZER)

    return [
        optimizers.register_optimizer_step_pre_hook(before),
        optimizers.register_optimizer_step_post_hook(after),
    ]


def _sheltered(make: Callable[[Function, str], Function]) -> Callable[[Function, str], Function]:
    def making(original: Function, about: str) -> Function:
        return sheltered("a region", lambda begin: make(begin, about))(original)

    return making


def _never() -> bool:
    """What is compiled sees the originals (jit_guard.py), so nobody asks while compiling."""
    return False
