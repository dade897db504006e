"""Record the calls of a framework's functions while a step collects: at every level but L0, which replaces none."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from probe_runtime.collect.collector import Collector
from probe_runtime.collect.recorder import Target
from probe_runtime.patching.patches import Patches


@contextmanager
def tapped_functions(
    collector: Collector,
    target: Target,
    patches: Patches,
    models: Sequence[Any],
    regions: AbstractContextManager[None],
) -> Iterator[None]:
    """Send the calls of patched functions to the collector while open, and note which listed ones are missing.

    target: the tap of ``patches``.
    models: searched for attributes that hold one of the functions.
    regions: a context in which the collector is told of the regions outside of the model.
    """
    with ExitStack() as stack:
        target.recorder = collector.recorder
        stack.callback(target.clear)
        stack.callback(collector.works.give_up)
        stack.enter_context(regions)
        patches.apply(*models)
        stack.callback(patches.undo)
        for missing, why in patches.missing.items():
            collector.coverage.missing.setdefault(missing, why)
        yield
