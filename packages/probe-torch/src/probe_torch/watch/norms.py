"""Compute the norms of many tensors, and of their changes since they were copied; count NaN and infinities in those
whose norm is not finite."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from probe_format.watch import ABSENT
from probe_runtime.watch import Norms

from probe_torch.tensors.statistics import flat
from probe_torch.tensors.tensor_view import NO_DISPATCH, view_of

_T: Any = torch._C.TensorBase
_V: Any = torch._C._VariableFunctions
_dot: Any = _V.dot
_norm: Any = torch.linalg.vector_norm
_norms: Any = torch._foreach_norm
_copy: Any = torch._foreach_copy_
_subtract: Any = torch._foreach_sub_
#: The most elements that a CPU adds up in float32: the norm of eight times as many may be off by 4e-4. (Accelerators
#: add up in the form of a tree, and need no limit.)
_PIECE = 1 << 17
#: The most elements of a piece that stays in the cache of one core with its copy and their difference.
_ROOM = 1 << 16
#: Below this norm, squares may have been too small for float32.
_SMALL = 1e-15
_WIDE = (torch.float32, torch.float64)
_NOTHING = torch.empty(0)


def norms_of(tensors: Sequence[torch.Tensor]) -> Norms:
    """Return the Euclidean norms of tensors. Call it within `aside` and without gradients."""
    read = [_plain(t) for t in tensors]
    plain = [_NOTHING if t is None else t for t in read]
    values = _values(plain)
    bad: dict[int, tuple[int, int]] = {}
    odd = np.flatnonzero(~np.isfinite(values) | (values < _SMALL)).tolist()
    largest = _values([plain[i] for i in odd], math.inf).tolist()
    for i, top in zip(odd, largest, strict=True):
        if math.isfinite(top):
            values[i] = top and _scaled(plain[i], top)
        else:
            bad[i] = nan, inf = _counted(plain[i])
            values[i] = math.nan if nan else math.inf if inf else top
    values[[t is None for t in read]] = ABSENT
    return Norms(values, bad)


def _values(tensors: Sequence[Any], order: float = 2.0) -> np.ndarray:
    """Return the norms as float64 (0 if empty): one pass for each dtype, and one transfer for each device."""
    found = np.zeros(len(tensors))
    groups: dict[torch.device, dict[torch.dtype, list[int]]] = {}
    for i, t in enumerate(tensors):
        if (count := _T.numel(t)) > _PIECE and t.device.type == "cpu":
            found[i] = _of_pieces(t, order)
        elif count:
            groups.setdefault(t.device, {}).setdefault(t.dtype, []).append(i)
    for by_dtype in groups.values():
        parts = [
            _V.stack(_norms([tensors[i] for i in places], order, dtype=_sum_dtype(dtype)))
            for dtype, places in by_dtype.items()
        ]
        whole = parts[0] if len(parts) == 1 else _V.cat(parts)  # of float32 and float64 it is float64
        found[[i for places in by_dtype.values() for i in places]] = _T.numpy(_T.cpu(whole))
    return found


def _of_pieces(t: Any, order: float = 2.0) -> float:
    """Return the norm of a real tensor on a CPU, computed by pieces that are joined in float64."""
    if order != 2.0:
        return float(_norm(t, order))
    # A dot product is as fast as reading, and uses several threads; it would add up narrow floats in their own dtype.
    wide = (_T.to(piece, _sum_dtype(t.dtype)) for piece in _T.split(flat(t), _PIECE))
    return math.sqrt(sum(float(_dot(piece, piece)) for piece in wide))


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in _WIDE else torch.float32


def _plain(t: Any) -> Any:
    """Return a tensor as a strided one of real floats, a view or a copy; None where nobody can read its numbers."""
    if (t := local(t)) is None:
        return None
    t = _T.detach(t)
    if t.layout is torch.sparse_coo:
        t = _T.values(_T.coalesce(t))
    if t.dtype.is_complex:
        t = _V.view_as_real(_V.resolve_conj(t))
    elif not (t.dtype in _WIDE or t.dtype in (torch.bfloat16, torch.float16)):
        t = _T.to(t, torch.float64 if not t.dtype.is_floating_point else torch.float32)
    return t


def local(t: Any) -> Any:
    """Return a plain tensor with the numbers of ``t``, or of this process's part of a DTensor; None without any."""
    t = getattr(t, "_local_tensor", t)
    usual = t.layout is torch.sparse_coo or (t.layout is torch.strided and not (t.is_quantized or t.is_meta))
    return t if usual and type(t).__torch_dispatch__ is NO_DISPATCH else view_of(t).data


def changes_of(tensors: Sequence[Any], copies: Sequence[Any]) -> Norms:
    """Return the norms of the differences to earlier copies of the tensors, and bring the copies up to date."""
    if any(t.device.type != "cpu" for t in tensors):
        _subtract(copies, tensors)
        found = norms_of(copies)
        _copy(copies, tensors)
        return found
    values = np.zeros(len(tensors))
    bad: dict[int, tuple[int, int]] = {}
    room = _V.empty(0)
    for i, (t, copy) in enumerate(zip(tensors, copies, strict=True)):
        dtype = t.dtype if t.dtype.is_complex else _sum_dtype(t.dtype)
        norms = []
        for new, old in _pieces(_T.detach(t), copy):
            if room.shape != new.shape or room.dtype is not dtype:
                room = _V.empty(new.shape, dtype=dtype)
            if new.dtype is dtype:
                _V.sub(new, old, out=room)
            else:
                _T.sub_(_T.copy_(room, new), old)
            norm = _of_pieces(_V.view_as_real(room) if dtype.is_complex else room)
            if not _SMALL <= norm < math.inf:
                one = norms_of([room])
                norm = float(one.values[0])
                for nan, inf in one.bad.values():
                    bad[i] = bad.get(i, (0, 0))[0] + nan, bad.get(i, (0, 0))[1] + inf
            norms.append(norm)
            _T.copy_(old, new)
        values[i] = np.linalg.norm(norms)
    return Norms(values, bad)


def _pieces(t: Any, copy: Any) -> Iterable[tuple[Any, Any]]:
    """Return pairs of pieces that stay in the cache with their difference, so that memory is read once."""
    if _T.numel(t) > _ROOM:
        new, old = flat(t), flat(copy)
        # In one order, and ``old`` a view.
        if t.stride() == copy.stride() and old.data_ptr() == copy.data_ptr():
            return zip(_T.split(new, _ROOM), _T.split(old, _ROOM), strict=True)
    return [(t, copy)]


def _scaled(t: Any, top: float) -> float:
    """Return the norm of a finite tensor whose squares leave float32. top: the largest magnitude in it."""
    # Scaled in two steps, each by half of the exponent, as 1 / top is infinite for the smallest numbers.
    exponent = math.frexp(top)[1]
    half = math.ldexp(1.0, -exponent // 2)
    scale = math.ldexp(1.0, -exponent) / half
    scaled = _V.mul(_V.mul(_T.to(t, _sum_dtype(t.dtype)), half), scale)
    return float(_values([scaled])[0]) / scale / half


def _counted(t: Any) -> tuple[int, int]:
    """Return how many elements are NaN, and how many infinite."""
    return int(_V.count_nonzero(_V.isnan(t))), int(_V.count_nonzero(_V.isinf(t)))
