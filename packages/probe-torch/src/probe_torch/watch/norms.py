"""Compute the norms of many tensors in one pass, and count what is not finite only where a norm is not."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from probe_runtime.watch import Norms

_T: Any = torch._C.TensorBase
_V: Any = torch._C._VariableFunctions
_norms: Any = torch._foreach_norm
_copy: Any = torch._foreach_copy_
_subtract: Any = torch._foreach_sub_
#: How many elements a CPU adds up in float32: of eight times as many a norm may be off by 4e-4. They, a copy and their
#: difference stay in its cache. (Accelerators add up in the form of a tree.)
_PIECE = 1 << 17
#: Below it, squares may have left float32.
_SMALL = 1e-15
_WIDE = (torch.float32, torch.float64)


def norms_of(tensors: Sequence[torch.Tensor]) -> Norms:
    """Return the Euclidean norms. Call it within `aside` and without gradients."""
    pieces = [_pieces(t) for t in tensors]
    counts = np.fromiter(map(len, pieces), np.intp, len(pieces))
    of_pieces = _values([piece for each in pieces for piece in each])
    if len(of_pieces) == len(pieces):
        values = of_pieces
    else:
        with np.errstate(over="ignore", under="ignore"):
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            squares = np.append(of_pieces * of_pieces, 0.0)  # an empty tensor has no piece
            values = np.sqrt(np.where(counts, np.add.reduceat(squares, starts), 0.0))
    odd = np.flatnonzero(~np.isfinite(values) | (values < _SMALL)).tolist()
    odd = [i for i in odd if pieces[i]]
    bad: dict[int, tuple[int, int]] = {}
    if odd:
        largest = _values([piece for i in odd for piece in pieces[i]], float("inf"))
        at = 0
        for i in odd:
            tops = largest[at : at + len(pieces[i])]
            at += len(pieces[i])
            top = float(tops.max())  # NaN wins
            if not np.isfinite(top):
                bad[i] = nan, inf = _counted(pieces[i])
                values[i] = np.nan if nan else np.inf if inf else top
            else:
                values[i] = top and _scaled(pieces[i], top)
    return Norms(values, bad)


def _values(pieces: Sequence[torch.Tensor], order: float = 2.0) -> np.ndarray:
    """Return the norms of pieces as float64: one pass for each dtype, and one transfer for each device."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, piece in enumerate(pieces):
        groups.setdefault((piece.device, piece.dtype), []).append(i)
    found = np.zeros(len(pieces))
    by_device: dict[torch.device, list[tuple[list[int], Any]]] = {}
    for (device, dtype), places in groups.items():
        wide = None if dtype in _WIDE else torch.float32
        stacked = _V.stack(_norms([pieces[i] for i in places], order, dtype=wide))
        by_device.setdefault(device, []).append((places, stacked))
    for parts in by_device.values():
        dtype = torch.float64 if any(part.dtype is torch.float64 for _, part in parts) else torch.float32
        whole = parts[0][1] if len(parts) == 1 else _V.cat([_T.to(part, dtype) for _, part in parts])
        found[[i for places, _ in parts for i in places]] = _T.numpy(_T.cpu(whole))
    return found


def _pieces(t: Any) -> list[torch.Tensor]:
    """Return strided real views (or, of what has none, copies) of a tensor, of which each is added up by itself."""
    t = _T.detach(local(t))
    if t.layout is not torch.strided:
        t = _T.values(_T.coalesce(t)) if t.layout is torch.sparse_coo else _T.values(t)
    if t.dtype.is_complex:
        t = _V.view_as_real(_V.resolve_conj(t))
    elif not (t.dtype in _WIDE or t.dtype in (torch.bfloat16, torch.float16)):
        t = _T.to(t, torch.float64 if not t.dtype.is_floating_point else torch.float32)
    return _split(t) if t.device.type == "cpu" else [t] if _T.numel(t) else []


def _split(t: Any) -> list[Any]:
    """Return views that are pieces, or rows where these are larger."""
    count = _T.numel(t)
    if count <= _PIECE:
        return [t] if count else []
    if _T.is_contiguous(t):
        t = _T.view(t, -1)
    rows = _T.size(t, 0)
    return list(_T.split(t, max(1, rows * _PIECE // count)))


def local(t: Any) -> Any:
    """Return this process's part of a tensor that is distributed, and any other as it is."""
    return getattr(t, "_local_tensor", t)


def _wide(t: Any) -> torch.dtype:
    """Return the dtype that differences of such tensors are computed in."""
    found: torch.dtype = t.dtype if t.dtype in _WIDE or t.dtype.is_complex else torch.float32
    return found


def changes_of(tensors: Sequence[Any], copies: Sequence[Any]) -> Norms:
    """Return the norms of the differences to earlier copies, which become copies of what is there now.

    On the CPU a piece at a time, which stays in its cache: each number comes from the memory once.
    """
    if any(t.device.type != "cpu" for t in tensors):
        _subtract(copies, tensors)
        norms = norms_of(copies)
        _copy(copies, tensors)
        return norms
    values = np.zeros(len(tensors))
    bad: dict[int, tuple[int, int]] = {}
    rooms = {dtype: torch.empty(_PIECE, dtype=dtype) for dtype in {_wide(t) for t in tensors}}
    for i, (t, copy) in enumerate(zip(tensors, copies, strict=True)):
        parts = []
        for new, old in zip(_split(_T.detach(t)), _split(copy), strict=True):
            count = _T.numel(new)
            room = rooms[_wide(t)]
            room = (
                _T.view(room[:count], new.shape) if count <= _PIECE else _V.empty(new.shape, dtype=room.dtype)
            )
            narrow = new.dtype is not room.dtype
            apart = _T.sub_(_T.copy_(room, new), old) if narrow else _V.sub(new, old, out=room)
            _T.copy_(old, new)
            norm = float(_norms([apart], 2.0)[0])
            if not _SMALL <= norm < np.inf:
                one = norms_of([apart])
                norm = float(one.values[0])
                for counts in one.bad.values():
                    nan, inf = bad.get(i, (0, 0))
                    bad[i] = nan + counts[0], inf + counts[1]
            parts.append(norm)
        values[i] = np.linalg.norm(parts) if parts else 0.0
    return Norms(values, bad)


def _scaled(pieces: Iterable[torch.Tensor], top: float) -> float:
    """Return the norm of finite pieces whose squares float32 does not hold. top: the largest magnitude."""
    # In two steps: half of the exponents each, as 1 / top is infinite for the smallest.
    exponent = math.frexp(top)[1]
    half = math.ldexp(1.0, -exponent // 2)
    scale = math.ldexp(1.0, -exponent) / half
    wide = (_T.to(p, torch.float32) if p.dtype not in _WIDE else p for p in pieces)
    parts = _values([_V.mul(_V.mul(p, half), scale) for p in wide])
    return float(np.linalg.norm(parts)) / scale / half


def _counted(pieces: Iterable[torch.Tensor]) -> tuple[int, int]:
    """Return how many elements are NaN, and how many infinite."""
    counts = [(_V.count_nonzero(_V.isnan(p)), _V.count_nonzero(_V.isinf(p))) for p in pieces]
    return sum(int(nan) for nan, _ in counts), sum(int(inf) for _, inf in counts)
