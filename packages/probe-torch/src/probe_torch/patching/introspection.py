"""Let calls that inspect or copy a function of torch find the original, as they would without Probe."""

import functools
from types import SimpleNamespace
from typing import Any

import torch
from probe_runtime import patching
from probe_runtime.patching import Function, Place, attributes_of, original_of, quiet, suspended
from torch import nn

from .wrappers import switch

# They look functions up by identity or by name, all over the process. They are rare, so the originals are put
# back while they run.
_SUSPENDED = (
    ("torch.jit", "script"),
    ("torch.jit", "trace"),
    ("torch.jit", "trace_module"),
    ("torch.fx", "symbolic_trace"),
    ("torch.fx.Tracer", "trace"),
    ("torch.export", "export"),
    ("torch.onnx", "export"),
    ("torch.fx.experimental.proxy_tensor._MakefxTracer", "trace"),
    ("torch", "load"),
    # Wraps some of the above permanently, when torch.compile first runs.
    ("torch._dynamo.eval_frame.TorchPatcher", "patch"),
)
# Lightning tells how a logged value is reduced by the identity of a function that it has kept (`is torch.mean`), at
# each log().
_COMPARED = tuple(
    (f"{package}.trainer.connectors.logger_connector.result._Metadata", f"is_{name}_reduction")
    for package in ("lightning.pytorch", "pytorch_lightning")
    for name in ("mean", "sum", "max", "min")
)


def guards() -> list[Place]:
    """Return the places that let torch.jit.script and trace, torch.fx, torch.export and torch.load run with originals.

    torch.save is not recorded. The others are those of `probe_runtime.patching.guards`.
    """
    # torch.save makes its pickler on each call, as a subclass of pickle.Pickler, which is ours while patched.
    return [
        *patching.guards(nn.Module),
        *attributes_of(_SUSPENDED, _suspended),
        *attributes_of(_COMPARED, _compared),
        *attributes_of([("torch", "save")], quiet),
    ]


def _suspended(original: Function) -> Function:
    call = suspended(original, switch)
    if original is not torch.jit.script:
        return call

    # torch.jit.script looks for the names that a class uses in its caller's frame, which is two frames further up now.
    @functools.wraps(original)
    def script(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **{**kwargs, "_frames_up": kwargs.get("_frames_up", 0) + 2})

    return script


def _compared(original: Any) -> Any:
    def answer(metadata: Any) -> Any:
        kept = metadata.reduce_fx
        now = getattr(torch, getattr(kept, "__name__", ""), kept)
        return original.fget(
            SimpleNamespace(reduce_fx=now if original_of(now) is original_of(kept) else kept)
        )

    return property(answer)
