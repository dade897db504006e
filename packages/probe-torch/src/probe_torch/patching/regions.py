"""Regions of a step that are not the model: the optimizer, gradient clipping, printing, loading data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from probe_format.write import Coverage
from probe_runtime.collect import guarded
from probe_runtime.patching import Attribute, Function, Regions, attribute, found
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

from probe_torch.compiling import is_compiling

from .patches import Patches

__all__ = ["CLIP_GRAD", "OPTIMIZER", "StepRegions"]

OPTIMIZER = "optimizer"
CLIP_GRAD = "clip_grad"

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


class StepRegions:
    """While entered, `push(node)` and `pop(node)` frame what belongs to a node; quiet regions are not
    recorded.

    Node "optimizer": step and zero_grad of every optimizer, and what a GradScaler does around them. Node
    "clip_grad": torch.nn.utils.clip_grad_*. Every push is followed by its pop in the same thread,
    exceptions or not; a node inside itself is pushed once. The closure that LBFGS and others call in their
    step runs the user's model: the open nodes are popped before it and pushed again after it.

    Quiet: printing a tensor, DataLoader, and collectives on pickled objects.
    """

    def __init__(self, patches: Patches, push: Callable[[str], None], pop: Callable[[str], None]) -> None:
        self._patches = patches
        self._regions = Regions(push, pop, is_compiling)
        self._places: list[Attribute] = []
        self._profiled: list[Attribute] = []
        self._hook: Any = None

    def count_left_out(self, coverage: Coverage) -> None:
        """Count what was left out, by reason."""
        self._regions.count_left_out(coverage)

    def __enter__(self) -> StepRegions:
        if not self._places or any(place.current() is not place.raw for place in self._places):
            self._places = [*found(_NODES, self._regions.in_node), *found(_QUIET, self._regions.in_quiet)]
        # torch wraps every optimizer's step and zero_grad in this region, whoever calls it how: a learning
        # rate scheduler keeps the step it found in the optimizer itself, so patched classes would not be
        # asked.
        self._profiled = [
            attribute(record_function, "__enter__", self._entering),
            attribute(record_function, "__exit__", self._exiting),
        ]
        self._patches.include(self._places)
        self._regions.start()
        try:
            for place in self._profiled:
                place.put()
            self._hook = register_optimizer_step_pre_hook(
                guarded("an optimizer", "its closure", self._before_step)
            )
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._regions.stop()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        for place in self._profiled:
            place.restore()
        self._patches.exclude(self._places)

    def _entering(self, original: Function) -> Function:
        @functools.wraps(original)
        def enter(region: Any) -> Any:
            entered = original(region)
            if region.name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")) and self._regions.opens(
                OPTIMIZER
            ):
                region._probe_opened = self
            return entered

        return enter

    def _exiting(self, original: Function) -> Function:
        @functools.wraps(original)
        def leave(region: Any, *error: Any) -> Any:
            # Only what was opened here: start() and stop() may be called from inside a step.
            if getattr(region, "_probe_opened", None) is self:
                del region._probe_opened
                self._regions.closes(OPTIMIZER)
            return original(region, *error)

        return leave

    def _before_step(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called by torch with step's arguments (the optimizer first); may return others."""
        if "closure" in kwargs and callable(kwargs["closure"]):
            return args, {**kwargs, "closure": self._regions.outside(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._regions.outside(args[1]), *args[2:]), kwargs
        return None
