"""Elements of every kind, and what is true of them by exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_fast import KINDS
from probe_format.tensors import sketch_of, widen
from probe_format.tensors.narrow_floats import code_values

Array = npt.NDArray[Any]

#: What `codes` mean in these tests, as float32.
TABLE = code_values("float8e5m2").view(np.float32)
#: Kind -> how numpy reads its elements.
DTYPES = {"bfloat16": "uint16", "codes": "uint8", **{k: k for k in KINDS if k not in ("bfloat16", "codes")}}
FLOATS = ("float32", "float64", "float16", "bfloat16", "codes")


@frozen
class Truth:
    """The numbers of some elements; None where float64 cannot add their squares."""

    max: float
    min: float
    mean: float | None
    norm: float | None
    size: float
    counts: tuple[int, int, int, int]
    sketch: list[float] | None


def values(a: Array, kind: str) -> Array:
    """The elements as float64; integers as they are."""
    with np.errstate(all="ignore"):
        if kind == "codes":
            return TABLE[a].astype(np.float64)
        if kind == "bfloat16":
            return widen(a, kind).astype(np.float64)
        return a.astype(np.float64) if kind in FLOATS else a


def truth(a: Array, kind: str) -> Truth:
    v = values(a, kind)
    finite = v[np.isfinite(v)]
    counts = (np.isnan(v).sum(), (v == np.inf).sum(), (v == -np.inf).sum(), (v == 0).sum())
    ends = (finite.max(), finite.min()) if finite.size else (-math.inf, math.inf)
    mean = norm = sketch = None
    size = math.inf
    parts = [float(x) for x in v]
    with np.errstate(all="ignore"):
        squares = math.fsum(x * x for x in parts) if finite.size == v.size else math.inf
    if math.isfinite(squares) and (squares > 1e-279 or not any(parts)):
        mean, norm = math.fsum(parts) / len(parts), math.sqrt(squares)
        size = math.fsum(map(abs, parts)) / len(parts)
        sketch = sketch_of(v.astype(np.float64))
    return Truth(*ends, mean, norm, size, tuple(map(int, counts)), sketch)  # type: ignore[arg-type]


def drawn(kind: str, count: int, seed: int) -> Iterator[Array]:
    """Arrays of so many elements: ordinary, any bits (NaN payloads, denormals), the edges of the kind, all of one."""
    rng = np.random.default_rng([seed, count, KINDS[kind]])
    dtype = np.dtype(DTYPES[kind])
    raw = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    bits = raw.view(dtype) if kind != "bool" else (raw & 1).view(bool)
    yield bits
    if kind not in FLOATS:
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            yield rng.choice(np.array([info.min, info.max, info.max - 1, 0], dtype), count)
            yield np.full(count, info.max, dtype)
        return
    with np.errstate(all="ignore"):
        for wide in (rng.standard_normal(count), 1e4 + rng.standard_normal(count) / 8):
            yield of(wide, kind)
        if kind in ("float32", "float64", "float16"):
            info = np.finfo(kind)
            edges = np.array([info.max, info.tiny, info.smallest_subnormal, 0.0, -0.0, 1.0], kind)
            yield rng.choice(edges, count) * rng.choice(np.array([1, -1], kind), count)
            for edge in edges[:4]:
                yield np.full(count, -edge, kind)
        one = of(rng.standard_normal(count), kind)
        one[rng.integers(count)] = of(np.array([rng.choice([np.inf, -np.inf, np.nan])]), kind)[0]
        yield one


def of(wide: Array, kind: str) -> Array:
    """Float64 as elements of a kind of floats, cut off where they are too long."""
    if kind == "bfloat16":
        return (wide.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind == "codes":  # the upper byte of a float16
        return (wide.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)
    return wide.astype(kind)
