"""View any tensor as plain data: the names of its type, dtype and shape, and a strided tensor with its numbers.

The cases are those of spec/statistics.md: subclasses, DTensor, fake, meta, sparse, nested, quantised, lazily
conjugated tensors, functorch wrappers. A tensor without readable numbers gets a reason instead.
"""

import contextlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from attrs import evolve, field, frozen
from probe_format.excerpts import error_text, unsignalled

from .plain import has_memory

_T: Any = torch._C.TensorBase
_V: Any = torch._C._VariableFunctions
#: The types of tensors that behave as torch's own.
EXACT = (torch.Tensor, torch.nn.Parameter)
_functorch: Any = torch._C._functorch
_is_wrapped: Any = _functorch.is_functorch_wrapped_tensor
#: Return whether a tensor is within torch's older vmap: gradients of `is_grads_batched`, of `jacobian(vectorize=True)`.
in_older_vmap: Callable[[Any], bool] = _functorch.is_legacy_batchedtensor
_OLDER_LEVELS = 64  # as many as it can be nested
#: Return whether work that is put on the current stream now becomes part of a CUDA graph.
capturing: Callable[[], bool] = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_CAPTURED = "captured into a CUDA graph: it is computed when the graph is replayed, not here"
#: The ``__torch_dispatch__`` of classes that do not carry out operations themselves.
NO_DISPATCH = torch.Tensor.__torch_dispatch__
_UNINITIALISED = (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)


@frozen
class TensorView:
    """Describe a tensor as plain data.

    type, dtype, shape: as written in dump.json.
    data: detached strided tensor with the numbers, or None.
    bits: a tensor with the bytes where they are not those of ``data`` (quantised).
    extra: more keys for the tensor object.
    reason: why there is no data.
    asynchronous: whether it is the result of a collective that may not have been waited for.
    """

    type: str
    dtype: str
    shape: list[int]
    data: torch.Tensor | None
    bits: torch.Tensor | None = None
    extra: dict[str, Any] = field(factory=dict)
    reason: str = ""
    asynchronous: bool = False


def view_of(t: torch.Tensor) -> TensorView:
    """Return the view of ``t``; one that cannot be read has no data and a reason, and raises no error."""
    found = _view(t)
    data = found.data
    if data is not None and data.is_cuda and capturing():
        return evolve(found, data=None, bits=None, reason=_CAPTURED)
    if data is None or has_memory(data):
        return found
    if _T._is_zerotensor(data):  # autograd's own, in forward mode and for gradients that are zero
        return evolve(found, data=_T.clone(data))
    return evolve(found, data=None, bits=None, reason="its memory is freed")


def _view(t: torch.Tensor) -> TensorView:
    if _is_wrapped(t):
        return _unwrapped(t)
    if in_older_vmap(t):  # no view of it can be made: not even by detach
        return _of_older_vmap(t)
    if type(t) in EXACT and t.layout is torch.strided and not (t.is_nested or t.is_quantized or t.is_meta):
        return TensorView("torch.Tensor", str(t.dtype), list(t.shape), _settled(_T.detach(t)))
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return _unusual(t)
        except unsignalled(Exception) as e:
            why = error_text(e).split("\n")[0]
            return TensorView(_type_name(t), str(t.dtype), _shape(t), None, reason=f"cannot be read ({why})")


def _settled(data: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its conjugation and negation carried out, which torch puts off."""
    if data.is_conj() or data.is_neg():
        return _V.resolve_neg(_V.resolve_conj(data))  # type: ignore[no-any-return]
    return data


def _type_name(t: torch.Tensor) -> str:
    cls = type(t)
    if cls.__torch_dispatch__ is NO_DISPATCH:
        return "torch.Tensor"
    if cls.__name__ == "DTensor":
        return "torch.distributed.tensor.DTensor"
    return f"{cls.__module__}.{cls.__qualname__}"


def _shape(t: torch.Tensor) -> list[int]:
    for look in (attrgetter("shape"), _T.size):  # a class of the user's may raise at the first
        with contextlib.suppress(Exception):  # symbolic or nested sizes
            return [int(s) for s in look(t)]
    return []


def _unwrapped(t: torch.Tensor) -> TensorView:
    """View a tensor within `torch.func`: the numbers are those of the tensor inside all levels, with every batch."""
    levels = []
    inner = t
    while _is_wrapped(inner):
        level: dict[str, Any] = {"type": _wrapper(inner), "level": _functorch.maybe_get_level(inner)}
        if _functorch.is_batchedtensor(inner):
            level["dim"] = _functorch.maybe_get_bdim(inner)
        levels.append(level)
        inner = _functorch.get_unwrapped(inner)
    with torch._C._DisableFuncTorch():  # otherwise the results would be wrapped again
        found = view_of(inner)
    extra = {**found.extra, "functorch": levels}
    return TensorView(
        levels[0]["type"], str(t.dtype), found.shape, found.data, found.bits, extra, found.reason
    )


def _of_older_vmap(t: torch.Tensor) -> TensorView:
    """View a tensor within the older vmap as one within `torch.func`; the batch is the first dimension."""
    found = unbatched(t)
    if found is None:
        return TensorView("BatchedTensor", str(t.dtype), _shape(t), None, reason="its batch is empty")
    level, whole = found
    inner = view_of(whole)
    levels = [{"type": "BatchedTensor", "level": level, "dim": 0}, *inner.extra.get("functorch", ())]
    return evolve(inner, type="BatchedTensor", extra={**inner.extra, "functorch": levels})


def unbatched(t: torch.Tensor) -> tuple[int, torch.Tensor] | None:
    """Return a level that a tensor has in the older vmap, and the tensor with that batch as its first dimension.

    None where the batch is empty.
    """
    with torch.no_grad():
        for level in range(1, _OLDER_LEVELS + 1):
            whole = _V._remove_batch_dim(t, level, 0, 0)
            if len(whole):  # else it has no such level, and was given the 0
                return level, whole
    return None


def _wrapper(t: torch.Tensor) -> str:
    if _functorch.is_batchedtensor(t):
        return "BatchedTensor"
    return "GradTrackingTensor" if _functorch.is_gradtrackingtensor(t) else "FunctionalTensor"


def _unusual(t: torch.Tensor) -> TensorView:
    name, dtype = _type_name(t), str(t.dtype)
    if hasattr(t, "_local_tensor") and hasattr(t, "placements"):
        return _dtensor(t, name, dtype)
    if type(t).__name__ == "FakeTensor":
        return TensorView(name, dtype, _shape(t), None, reason="a fake tensor has no data")
    if isinstance(t, _UNINITIALISED):
        return TensorView("torch.Tensor", dtype, [], None, reason="an uninitialised parameter has no data")
    if t.is_nested:
        data = _T.detach(t).values()
        return TensorView(name, dtype, list(data.shape), _T.detach(data), extra={"nested": True})
    if t.layout is not torch.strided:
        return _sparse(t, name, dtype)
    if t.device.type == "meta":
        return TensorView(name, dtype, _shape(t), None, reason="a meta tensor has no data")
    if t.is_quantized:
        base = _T.detach(t)
        return TensorView(name, dtype, _shape(t), base.dequantize(), bits=base.int_repr())
    if type(t).__torch_dispatch__ is not NO_DISPATCH:
        inner = _inner(t)
        if isinstance(inner, str):
            return TensorView(name, dtype, _shape(t), None, reason=inner)
        found = view_of(inner)
        late = found.asynchronous or (
            type(t).__name__ == "AsyncCollectiveTensor" and not getattr(t, "completed", True)
        )
        return evolve(found, type=name, dtype=dtype, shape=_shape(t), asynchronous=late)
    return TensorView(name, dtype, _shape(t), _settled(_T.detach(t).as_subclass(torch.Tensor)))


def _inner(t: Any) -> torch.Tensor | str:
    """Return the tensor that a subclass is made of, or stands for; the reason where that is not known."""
    inner: Any = getattr(t, "elem", None)
    if _stands_for(inner, t):
        return inner  # type: ignore[no-any-return]
    if type(t).dequantize != torch.Tensor.dequantize:  # torchao's
        return t.dequantize()  # type: ignore[no-any-return]
    why = f"the tensor subclass {type(t).__qualname__} hides its data"
    if not hasattr(t, "__tensor_flatten__"):
        return why
    parts, _ = t.__tensor_flatten__()
    inner = getattr(t, parts[0]) if len(parts) == 1 else None
    return inner if _stands_for(inner, t) else f"{why} in {', '.join(parts)}"


def _stands_for(inner: Any, t: Any) -> bool:
    """Return whether what is inside of a tensor subclass is a tensor of the same shape and dtype."""
    return issubclass(type(inner), torch.Tensor) and (inner.shape, inner.dtype) == (t.shape, t.dtype)


def _dtensor(t: Any, name: str, dtype: str) -> TensorView:
    local = t._local_tensor
    found = view_of(local)
    extra = {
        "device_mesh": t.device_mesh.mesh.tolist(),
        "placements": [_placement(p) for p in t.placements],
        "global_shape": _shape(t),
    }
    return evolve(found, type=name, dtype=dtype, shape=_shape(local), extra=extra)


def _placement(p: Any) -> dict[str, Any]:
    kind = type(p).__name__
    if kind == "Replicate":
        return {"Replicate": {}}
    if kind == "Partial":
        return {"Partial": {"reduce_op": str(p.reduce_op)}}
    return {kind.lstrip("_"): {"dim": getattr(p, "dim", None)}}


def _sparse(t: torch.Tensor, name: str, dtype: str) -> TensorView:
    """View the stored values of a sparse tensor, with their count; the implied zeros do not count."""
    base = _T.detach(t)
    layout = str(t.layout)
    if t.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return TensorView(name, dtype, _shape(t), base.to_dense(), extra={"layout": layout})
    values = base._values() if t.layout is torch.sparse_coo else base.values()
    return TensorView(
        name, dtype, _shape(t), _T.detach(values), extra={"layout": layout, "stored": values.numel()}
    )
