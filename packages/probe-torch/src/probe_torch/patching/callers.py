"""Distinguish calls of the model from calls that torch makes for itself, which are not recorded."""

import os
import sys
from types import FrameType

import torch

_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(os.path.dirname(__file__))

# Python code of torch whose calls are not the model's: the compilers (most of which run in the first
# backward, when torch.compiler.is_compiling() is not true), the first gradient of a backward pass, the
# detached inputs of a checkpoint, printing, rebuilding tensors. And what a DTensor computes for itself: how its results
# are laid out, and how they are redistributed.
_PARTS = """
    _dynamo/ _inductor/ _subclasses/ _export/ _functorch/_aot_autograd/ _higher_order_ops/
    _functorch/aot_autograd.py _functorch/partitioners.py _functorch/compile_utils.py
    _prims/ _prims_common/ _refs/ _decomp/ _meta_registrations.py _library/ _ops.py
    fx/experimental/ fx/passes/ fx/graph.py fx/node.py fx/graph_module.py _guards.py
    autograd/__init__.py utils/checkpoint.py _tensor_str.py _utils.py
    distributed/tensor/ distributed/_functional_collectives.py
"""
_MACHINERY = tuple(os.path.join(_TORCH, *part.split("/")) for part in _PARTS.split())
# The exception: the collectives that distribute a tensor as a DTensor are recorded.
_MODELS = os.path.join(_TORCH, "distributed", "tensor", "_collective_utils.py")

_INDUCTOR = os.path.join(_TORCH, "_inductor", "")
_CALLING_GRAPHS = (_HERE, os.path.join(_TORCH, "fx", ""), os.path.join(_TORCH, "nn", "modules", "module.py"))

verdicts: dict[str, bool] = {}
"""File name -> whether its calls are the model's, for the file names that decide it alone."""


def _is_model_code(frame: FrameType) -> bool:
    """Return whether a call made from this frame belongs to the model; kept in `verdicts` where the file decides."""
    name = frame.f_code.co_filename
    if name.startswith("<eval_with_key>"):
        # A graph in torch.fx's numbered "files". Run by the backend "eager" it calls torch.relu and x.add
        # by name. One that Dynamo made is marked in `meta`; one that the user made is a model like any other.
        meta = getattr(frame.f_locals.get("self"), "meta", None)
        verdicts[name] = not (isinstance(meta, dict) and "dynamo_compile_id" in meta)
        return verdicts[name]
    if name.startswith(_HERE) or (name == "<string>" and "__name__" not in frame.f_globals):
        # Another patch of ours, or generated code (such as guards of compiled code): its caller decides.
        return frame.f_back is None or _is_model_code(frame.f_back)
    if name == "<string>":
        return True
    verdicts[name] = name == _MODELS or not name.startswith(_MACHINERY)
    return verdicts[name]


def is_model_calling() -> bool:
    """Return whether the model has called the function that asks."""
    try:
        return _is_model_code(sys._getframe(2))
    except ValueError:  # called from C with no Python below, where the user passed it (threads)
        return True


def is_torch_code(frame: FrameType) -> bool:
    """Return whether a call made from this frame is torch's own, or of code that its compiler has made."""
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back  # another patch of ours: its caller decides
    if frame.f_code.co_filename.startswith("<eval_with_key>"):
        above = frame.f_back  # who calls the graph: the run, or what torch.compile has made
        while above is not None and above.f_code.co_filename.startswith(_CALLING_GRAPHS):
            above = above.f_back
        return above is not None and above.f_code.co_filename.startswith(_TORCH)
    above = frame.f_back
    made = above is not None and above.f_code.co_filename.startswith(_INDUCTOR)
    return made or frame.f_code.co_filename.startswith(_TORCH) or not _is_model_code(frame)
