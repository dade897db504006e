"""Notice when an optimizer writes: during its step, whoever calls it and however it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from probe_runtime.collect import guarded

from probe_torch.patching.optimizer_regions import optimizer_regions, runs_other_code
from probe_torch.tensors.silent_writes import OWN_OPTIMIZERS

__all__ = ["watched_optimizers"]


class _Callback(Protocol):
    def __call__(self, *, silent: bool) -> None: ...


class _Thread(threading.local):
    def __init__(self) -> None:
        self.silent: list[bool | None] = []


@contextmanager
def watched_optimizers(begins: _Callback, ends: _Callback) -> Iterator[None]:
    """Call `begins(silent=...)` and `ends(silent=...)` around the step of every optimizer, while this is open.

    silent: True unless the optimizer is known to raise the versions of what it writes. If it is, and runs a closure or
        hooks of the user's, which may write silently, its step is one like any other code.
    """
    steps = _Thread()

    def begin() -> bool:
        steps.silent.append(True)
        begins(silent=True)
        return True

    def end() -> None:
        if (silent := steps.silent.pop()) is not None:
            ends(silent=silent)

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        # A region has no reference to its optimizer; this hook is the first that gets it.
        if steps.silent and steps.silent[-1] and _raises_versions(optimizer):
            ends(silent=True)
            steps.silent[-1] = None
            if not runs_other_code(optimizer, args, kwargs):
                steps.silent[-1] = False
                begins(silent=False)

    guard = guarded("an optimizer", "its step", before_step)
    with optimizer_regions(("Optimizer.step#",), begin, end, guard):
        yield


def _raises_versions(optimizer: Any) -> bool:
    own = type(optimizer).__module__.startswith(OWN_OPTIMIZERS)
    return own and not any(group.get("fused") for group in optimizer.param_groups)
