"""Reduce a tensor on a CUDA device in one launch of a Triton kernel, to rows of extremes, counts and partial sums.

Of P programs, each takes every P-th block of the elements and leaves one row of a table. The host merges the rows in
their order (`device_table`), so the numbers do not depend on which program ended first.
"""
# mypy: ignore-errors
# ruff: noqa: SIM109  (Triton knows no `in`)

import triton
import triton.language as tl

#: What a kernel reads: float32 or float16, float64, pairs of floats, whole numbers, uint64, bytes of a float8, and the
#: bits of bfloat16, whose smallest numbers Triton's interpreter takes for zeros.
FLOAT, DOUBLE, COMPLEX, WHOLE, UNSIGNED, BYTES, BRAIN = (tl.constexpr(n) for n in range(7))


@triton.jit(do_not_specialize=["n", "row"])
def partials(
    x,
    table,
    of_byte,
    n,
    row,
    BLOCK: tl.constexpr,
    KIND: tl.constexpr,
    SKETCH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Leave a row of the table for each program.

    x: the elements, n of them. of_byte: the value of each byte as a float8. row: index of the first program's row.
    BLOCK: elements that a program takes at a time. KIND: of the elements, as above. SKETCH: whether to leave the sums
    of a sketch too. WIDTH: columns of the table.

    Columns, 8 bytes each: the max and min of what is finite; the counts of NaN, +Inf, -Inf and zeros (int64); the sum
    and the sum of squares (float64). Elements of float64 beyond 1e150 are added up apart, scaled by 2**-64, and so are
    their squares, scaled by 2**-1200, and those of elements below 1e-150, scaled by 2**1200: none overflows or
    vanishes. Then the sixteen sums of a sketch (probe_format/spec/statistics.md). Extremes are float64; those of whole
    numbers int64, of uint64 the same bits.
    """
    program = tl.program_id(0)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    nought = tl.zeros((BLOCK,), tl.float64)
    total, squares, large, large_squares, small_squares = nought, nought, nought, nought, nought
    none = tl.zeros((BLOCK,), tl.int32)
    zeros, nan, above, below = none, none, none, none
    signed = tl.zeros((16,), tl.float64)
    if KIND == UNSIGNED:
        top = tl.zeros((BLOCK,), tl.uint64)
        low = ~top
    elif KIND == WHOLE:
        low = tl.full((BLOCK,), 0x7FFFFFFFFFFFFFFF, tl.int64)
        top = ~low
    else:
        low = tl.full((BLOCK,), float("inf"), tl.float64)
        top = -low
    for begin in range(program.to(tl.int64) * BLOCK, n, step):
        at = begin + lanes
        inside = at < n
        if KIND == WHOLE or KIND == UNSIGNED:
            v = tl.load(x + at, mask=inside, other=0).to(top.dtype)
            top = tl.where(inside, tl.maximum(top, v), top)
            low = tl.where(inside, tl.minimum(low, v), low)
            kept = v.to(tl.float64)
        else:
            v = _floats(x, of_byte, at, inside, KIND)
            high, deep = v == float("inf"), v == -float("inf")
            good = inside & (v == v) & (high == 0) & (deep == 0)
            top = tl.where(good, tl.maximum(top, v), top)
            low = tl.where(good, tl.minimum(low, v), low)
            kept = tl.where(good, v, 0.0)
            nan += (inside & (v != v)).to(tl.int32)
            above += (inside & high).to(tl.int32)
            below += (inside & deep).to(tl.int32)
        zeros += (inside & (v == 0)).to(tl.int32)
        if KIND == DOUBLE or KIND == COMPLEX:
            size = tl.abs(kept)
            is_large, is_small = size > 1e150, size < 1e-150
            big = tl.where(is_large, kept, 0.0)
            large += big * 5.421010862427522e-20
            big *= 2.409919865102884e-181
            large_squares += big * big
            small = tl.where(is_small, kept, 0.0) * 4.149515568880993e180
            small_squares += small * small
            total += tl.where(is_large, 0.0, kept)
            middle = tl.where(is_large | is_small, 0.0, kept)
            squares += middle * middle
        else:
            total += kept
            squares += kept * kept
        if SKETCH:
            rows = (begin // 16 + tl.arange(0, BLOCK // 16)).to(tl.uint32)
            signed += tl.sum(tl.reshape(kept, (BLOCK // 16, 16)) * _signs(rows)[:, None], 0)
    out = table + (row + program) * WIDTH
    if KIND == WHOLE:
        tl.store(out, tl.max(top, 0))
        tl.store(out + 1, tl.min(low, 0))
    else:
        tl.store(out, tl.max(top, 0).to(tl.int64, bitcast=True))
        tl.store(out + 1, tl.min(low, 0).to(tl.int64, bitcast=True))
    tl.store(out + 2, tl.sum(nan, 0).to(tl.int64))
    tl.store(out + 3, tl.sum(above, 0).to(tl.int64))
    tl.store(out + 4, tl.sum(below, 0).to(tl.int64))
    tl.store(out + 5, tl.sum(zeros, 0).to(tl.int64))
    tl.store(out + 6, tl.sum(total, 0).to(tl.int64, bitcast=True))
    tl.store(out + 7, tl.sum(squares, 0).to(tl.int64, bitcast=True))
    tl.store(out + 8, tl.sum(large, 0).to(tl.int64, bitcast=True))
    tl.store(out + 9, tl.sum(large_squares, 0).to(tl.int64, bitcast=True))
    tl.store(out + 10, tl.sum(small_squares, 0).to(tl.int64, bitcast=True))
    if SKETCH:
        tl.store(out + 11 + tl.arange(0, 16), signed.to(tl.int64, bitcast=True))


@triton.jit
def _floats(x, of_byte, at, inside, KIND: tl.constexpr):
    """Return the elements at these places as float64, of complex ones the absolute values."""
    if KIND == COMPLEX:
        a = tl.abs(tl.load(x + 2 * at, mask=inside, other=0.0).to(tl.float64))
        b = tl.abs(tl.load(x + 2 * at + 1, mask=inside, other=0.0).to(tl.float64))
        m = tl.maximum(a, b)
        ratio = tl.minimum(a, b) / tl.where(m > 0, m, 1.0)
        v = tl.where(a != a, a, tl.where(b != b, b, m * tl.sqrt(1.0 + ratio * ratio)))
        v = tl.where((a == float("inf")) | (b == float("inf")), float("inf"), v)
    elif KIND == BRAIN:
        bits = tl.load(x + at, mask=inside, other=0).to(tl.int32) << 16
        v = bits.to(tl.float32, bitcast=True).to(tl.float64)
    elif KIND == BYTES:
        v = tl.load(of_byte + tl.load(x + at, mask=inside, other=0).to(tl.int32)).to(tl.float64)
    else:
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float64)
    return v


@triton.jit
def _signs(rows):
    """Return the signs of a sketch's rows: by the last bit of the mixed row number."""
    h = (rows ^ (rows >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return tl.where(((h ^ (h >> 16)) & 1) == 1, -1.0, 1.0).to(tl.float64)
