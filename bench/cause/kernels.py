"""Compute with other kernels: honest ones, which sum in another order, and wrong ones, inside of one module alone."""

from __future__ import annotations

from typing import Any

import torch
from probe_runtime.patching import muted
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Kernels"]

_A = torch.ops.aten
_PRODUCTS = (_A.mm.default, _A.addmm.default, _A.bmm.default)
_CONVOLUTIONS = (_A.convolution.default, _A.convolution_backward.default)
_LINEAR = (_A.mm.default, _A.addmm.default, _A.convolution.default)
_FUSED = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
_FUSED_ATTENTION = [getattr(_A, f"_scaled_dot_product_{name}").default for name in _FUSED]
_SOFTMAX = (_A._softmax.default, _A._safe_softmax.default)


class Kernels(TorchDispatchMode):
    """Replace kernels: matrix products by `honest` everywhere, and while `active` by those of a fault.

    honest: ``splitk`` (two partial sums, each rounded to the dtype), ``wide`` (sums in float64, rounded once), ``tf32``
        (float32 numbers are rounded to 10 bits before they are multiplied), or None.
    fault: ``mm2``, ``lasttile``, ``scale5`` or ``mask``; None for no fault.
    """

    def __init__(self, honest: str | None, fault: str | None) -> None:
        super().__init__()
        self.honest, self.fault, self.active, self.hit = honest, fault, False, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with muted():  # a kernel's own calls are none of the model's
            return self._computed(func, args, kwargs or {})

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.active and self.fault:
            found = self._wrong(func, args, kwargs)
            if found is not None:
                self.hit = True
                return found
        if self.honest == "tf32" and func in (*_PRODUCTS, *_CONVOLUTIONS):
            return func(*map(_rounded, args), **kwargs)
        if self.honest in ("splitk", "wide") and func in _PRODUCTS and not kwargs:
            *bias, x, y = args[-3:] if func is _A.addmm.default else args[:2]
            if x.is_floating_point():
                found = self._product(x, y)
                return found + bias[0] if bias else found
        return func(*args, **kwargs)

    def _product(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.honest == "wide":
            return (x.double() @ y.double()).to(x.dtype)
        k = x.shape[-1] // 2
        return x[..., :k] @ y[..., :k, :] + x[..., k:] @ y[..., k:, :]

    def _wrong(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.fault == "mm2" and func in (*_PRODUCTS, _A.convolution.default):
            return func(*args, **kwargs) * 1.02
        if self.fault == "lasttile" and func in _LINEAR:
            found = func(*args, **kwargs).clone()  # the last tile of columns, or of channels, was not summed
            tile = found[:, -1:] if found.dim() > 2 else found[:, -max(1, found.shape[1] // 32) :]
            tile.zero_()
            return found
        if self.fault in ("scale5", "mask"):
            return self._attention(func, args, kwargs)
        return None

    def _attention(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Scale the scores by 1.05, or mask the last column and let causal attention see one ahead."""
        if func in _FUSED_ATTENTION:
            q, k = args[:2]
            if self.fault == "scale5":
                scale = kwargs.get("scale") or q.shape[-1] ** -0.5
                return func(*args, **{**kwargs, "scale": scale * 1.05})
            seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(1)
            if not (len(args) > 4 and args[4]) and kwargs.get("attn_mask") is None:
                seen = torch.ones_like(seen)
                seen[:, -1] = False
            mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, float("-inf"))
            return func(*args[:3], 0.0, False, **{**kwargs, "attn_mask": mask})
        if func not in _SOFTMAX:
            return None
        x = args[0]
        if self.fault == "scale5":
            return func(x * 1.05, *args[1:], **kwargs)
        x = x.clone()
        x[..., -1], x[..., 0] = float("-inf"), x[..., 0].clamp(min=-1e4)
        return func(x, *args[1:], **kwargs)


def _rounded(x: Any) -> Any:
    """Round a tensor of float32 to 10 bits, as what multiplies TF32 does."""
    if not isinstance(x, torch.Tensor) or x.dtype is not torch.float32:
        return x
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
