"""Put one hook on an autograd node for all the calls that have a part in it.

Where a function is the last call of a module, both end in the same node. The hook tells both of its gradients, one
after the other, so that a gradient is described once: between the two no code but Probe's runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field
from probe_runtime.collect import Moment, guard

from probe_torch.aside import aside

__all__ = ["hook_node"]

Grads = tuple[torch.Tensor | None, ...]
Call = Callable[[Grads, Grads, Moment], None]

#: Under this key the hook is in the node's own table, so that it lives as long as the node.
_KEY = "probe_torch"


@define(eq=False)
class _NodeHook:
    """The hook on one node. Nothing here may refer to the node, which owns the hook: cycles there leak.

    calls: takes the gradients, for each call that has a part in the node; empty once the hook is removed.
    handle: removes the hook.
    """

    calls: list[Call] = field(factory=list)
    handle: Any = None

    def __call__(self, grad_inputs: Grads, grad_outputs: Grads) -> None:
        moment: Moment = {}
        try:
            with aside():
                for call in self.calls:
                    call(grad_inputs, grad_outputs, moment)
        except Exception as e:
            guard.report_fault("a gradient", "its arrival at a node", e)

    def remove(self) -> None:
        """Remove the hook."""
        self.calls = []
        self.handle.remove()


def hook_node(node: Any, call: Call) -> _NodeHook | None:
    """Call ``call`` with the gradients of a node in each backward pass. Return the hook where it is a new one."""
    hook = node.metadata.get(_KEY)
    if hook is not None and hook.calls:
        hook.calls.append(call)
        return None
    node.metadata[_KEY] = hook = _NodeHook([call])
    hook.handle = node.register_hook(hook)
    return hook
