"""Mark the regions of a step that are not the model: optimizer, printing, reading data, making parameters.

Calls within the optimizer, or within the clipping of gradients, are recorded under a node of that name; calls within
the other regions are left out, with the reason in the report of the step.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.write import Coverage
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Place, Regions, resolve_owner

from probe_mindspore.module_kind import source_of_torch, torch_on_mindspore


def _each(owners: str, names: str, about: str) -> list[tuple[str, str, str]]:
    return [(owner, name, about) for owner in owners.split() for name in names.split()]


# Calls that are recorded under a node.
_NODES = (
    ("mindspore.nn.Optimizer", "__call__", OPTIMIZER),
    ("mindspore.experimental.optim.optimizer.Optimizer", "__call__", OPTIMIZER),
    ("mindspore.experimental.optim.lr_scheduler.LRScheduler", "step", OPTIMIZER),
    ("mindspore.experimental.optim.lr_scheduler.ReduceLROnPlateau", "step", OPTIMIZER),
    *_each("mindspore.amp.StaticLossScaler mindspore.amp.DynamicLossScaler", "unscale adjust", OPTIMIZER),
    ("mindspore.amp", "all_finite", OPTIMIZER),
)
# Calls that are left out, and the reason in the report.
_QUIET = (
    *_each("mindspore.Tensor mindspore.Parameter", "__str__ __repr__ __format__", "printing"),
    ("mindspore.dataset.engine.iterators.Iterator", "__next__", "reading data"),
    ("mindspore.dataset.engine.iterators.DummyIterator", "__next__", "reading data"),
    *_each(
        "mindspore.dataset.engine.datasets.Dataset",
        "__iter__ create_tuple_iterator create_dict_iterator",
        "reading data",
    ),
    ("mindspore.common.initializer.Initializer", "__call__", "making parameters"),
    ("mindspore.Tensor", "init_data", "making parameters"),
    *_each("mindspore.Parameter", "init_data set_data", "making parameters"),
    *_each(
        "mindspore.mint.distributed",
        "all_gather_object gather_object broadcast_object_list scatter_object_list send_object_list "
        "recv_object_list barrier",
        "collectives on objects",
    ),
)
# The same for a torch built on MindSpore. Its optimizers call hooks.
_TORCH_NODES = (
    ("torch.nn.utils", "clip_grad_norm_", CLIP_GRAD),
    ("torch.nn.utils", "clip_grad_value_", CLIP_GRAD),
    *_each("torch.amp.GradScaler", "unscale_ step update", OPTIMIZER),
)
_TORCH_QUIET = (
    ("torch.utils.data.dataloader.DataLoader", "__iter__", "reading data"),
    ("torch.utils.data.dataloader._BaseDataLoaderIter", "__next__", "reading data"),
)


class _ShelteredRegions(Regions):
    """Shelter the replacements from errors of Probe's, as is done with every one on MindSpore.

    The compiler gets the originals (jit_guard.py), so they are not called while it compiles.
    """

    def in_node(self, original: Function, node: str) -> Function:
        return sheltered("a region", lambda f: super(_ShelteredRegions, self).in_node(f, node))(original)

    def in_quiet(self, original: Function, reason: str, name: str) -> Function:
        return sheltered("a region", lambda f: super(_ShelteredRegions, self).in_quiet(f, reason, name))(
            original
        )


_REGIONS = _ShelteredRegions()


def regions() -> list[Place]:
    """Return the places of the regions, which are replaced together with the recorded functions."""
    nodes, quiet = [*_NODES], [*_QUIET]
    if torch_on_mindspore() is not None:
        for rows, more in ((nodes, _TORCH_NODES), (quiet, _TORCH_QUIET)):
            rows += [(source_of_torch(owner), name, about) for owner, name, about in more]
    return _REGIONS.places(nodes, quiet)


@contextmanager
def step_regions(
    push: Callable[[str], None], pop: Callable[[str], None], coverage: Coverage
) -> Iterator[None]:
    """Enclose what belongs to a node in `push(node)` and `pop(node)`, and leave out quiet regions, while this is open.

    Node "optimizer": a call of any optimizer, a learning rate scheduler's step, and what a loss scaler does
    after the gradients.
    Node "clip_grad": torch.nn.utils.clip_grad_* of a torch built on MindSpore.
    Quiet: printing a tensor, iterating over a Dataset, making and filling parameters, and collectives on
    pickled objects.

    Every push is followed by its pop in the same thread, exceptions or not; if a step of such a torch's
    optimizer raises, the pop comes when collecting stops. A node inside itself is pushed once.
    """
    # No optimizer class of such a torch is patched: a learning rate scheduler keeps the step that it finds in one.
    optimizers: Any = None
    if torch_on_mindspore() is not None:
        optimizers = resolve_owner(source_of_torch("torch.optim.optimizer"))

    def before(*of_the_step: Any) -> None:  # a value that it returned would replace the step's arguments
        _REGIONS.opens(OPTIMIZER)

    def after(*of_the_step: Any) -> None:
        _REGIONS.closes(OPTIMIZER)

    with _REGIONS.started(push, pop, coverage), ExitStack() as stack:
        if hasattr(optimizers, "register_optimizer_step_post_hook"):
            stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
            stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
        yield
