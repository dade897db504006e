"""Measure how far two tensors are apart, by their recorded statistics or their saved values.

Arguments of calls that are no tensors (numbers, flags, texts) are compared here as well.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, frozen
from probe_format.jsonio import number
from probe_format.statistics import NOT_FINITE, WHOLE
from probe_format.values import plain

from .dtypes import dtype_name, eps_of, range_of
from .level import sketched

Numbers = Sequence[float | None]
_FOUR = range(len(WHOLE))


@define(eq=False)  # not frozen, as there is one of each tensor that differs
class Distance:
    """Say how far two tensors are apart.

    relative: the largest relative difference of a number; 0 where nothing differs, infinity where no number could
    make up for it (another shape, NaN on one side).
    said: the difference in words, empty where nothing differs; or which statistic it is, and the two numbers.
    form: whether they are tensors of another form: shape or dtype differ, or only one of them is there.
    """

    relative: float
    said: str | tuple[str, float | None, float | None] = ""
    form: bool = False

    @property
    def what(self) -> str:
        """Return the difference in words."""
        return self.said if isinstance(self.said, str) else f"{self.said[0]} {_told_apart(*self.said[1:])}"


SAME = Distance(0.0)
OTHER_BITS = "the same statistics, other bits"
"""The words where checksums alone differ: elements were exchanged, or changed too little for statistics to show."""


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> Distance:
    """Return how far two tensor objects are apart.

    Differences of Max and Min count relative to the largest magnitude, those of Mean relative to the root mean
    square, so that numbers near zero in a tensor of large ones do not count as large differences.
    """
    if a is b or a == b:
        return SAME
    shapes = a["shape"], b["shape"]
    if shapes[0] != shapes[1]:
        return Distance(math.inf, f"shape {_shape(shapes[0])} against {_shape(shapes[1])}", form=True)
    types = dtype_name(str(a["dtype"])), dtype_name(str(b["dtype"]))
    if types[0] != types[1]:  # numbers are compared as numbers
        found = _statistics(a, b, math.prod(shapes[0]))
        words = f"dtype {types[0]} against {types[1]}" + (f", {found.what}" if found.what else "")
        return Distance(found.relative, words, form=True)
    sums = a.get("md5"), b.get("md5")
    summed = _of_one_kind(*sums)
    if summed and sums[0] == sums[1]:
        return SAME
    found = _statistics(a, b, math.prod(shapes[0]))
    if (apart := sketched(a, b) or 0.0) > 2.0 * found.relative:  # a sketch is give or take a third
        more = f", {found.what}" if found.what else ""
        return Distance(apart, f"elements about {_percent(100 * apart)} % apart{more}")
    if found.relative == 0.0 and summed:
        return Distance(eps_of(types[0]) or math.inf, OTHER_BITS)
    return found


def comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether two tensors both have numbers, or checksums of one kind: else nothing tells them apart."""
    return (_has_numbers(a) and _has_numbers(b)) or _of_one_kind(a.get("md5"), b.get("md5"))


def _of_one_kind(one: Any, two: Any) -> bool:
    """Return whether two checksums are of one kind: CRC-32 and xor are written in other lengths."""
    return isinstance(one, str) and isinstance(two, str) and len(one) == len(two)


def _has_numbers(tensor: Mapping[str, Any]) -> bool:
    return any(key in tensor for key in WHOLE)


def _statistics(a: Mapping[str, Any], b: Mapping[str, Any], count: int) -> Distance:
    one, two = _plain(a), _plain(b)
    if one is not None and two is not None:
        return SAME if one == two else apart(one, two, count)
    if not (_has_numbers(a) and _has_numbers(b)):
        return SAME
    broken = _broken(a), _broken(b)
    if broken[0] != broken[1]:
        return Distance(math.inf, f"{broken[0] or 'all finite'} against {broken[1] or 'all finite'}")
    high, low = ("finite_max", "finite_min") if broken[0] and "finite_max" in a else ("Max", "Min")
    names = (high, low, "Mean", "Norm")
    x, y = ([_finite(tensor.get(key)) for key in names] for tensor in (a, b))  # whole numbers stay exact
    return apart(x, y, count, names)


def _plain(tensor: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """Return the four statistics where each is a finite float, which most are; None elsewhere."""
    get = tensor.get
    high, low, mean, norm = get("Max"), get("Min"), get("Mean"), get("Norm")
    if not (type(high) is type(low) is type(mean) is type(norm) is float) or "nan_count" in tensor:
        return None
    ends = high - high + low - low + mean - mean + norm - norm  # 0 where each of them is finite, else NaN
    return (high, low, mean, norm) if ends == 0.0 else None


def apart(one: Numbers, two: Numbers, count: int, names: Sequence[str] = WHOLE) -> Distance:
    """Return the largest relative difference of two lists of Max, Min, Mean and Norm. This runs for each tensor."""
    (high, low, _, length), (high2, low2, _, length2) = one, two
    largest = max(abs(high or 0.0), abs(low or 0.0), abs(high2 or 0.0), abs(low2 or 0.0))
    norm = max(abs(length or 0.0), abs(length2 or 0.0))
    scales = largest, largest, norm / math.sqrt(count) if count and norm else largest, norm
    relative, at = 0.0, -1
    for i in _FOUR:
        x, y = one[i], two[i]
        if x is None or y is None or x == y:
            continue
        share = abs(x - y) / scales[i] if scales[i] else math.inf
        if share > relative:
            relative, at = share, i
    return SAME if at < 0 else Distance(relative, (names[at], one[at], two[at]))


def _percent(share: float) -> str:
    return f"{share:.0f}" if share >= 100.0 else f"{share:.2g}"


def _told_apart(x: float | None, y: float | None) -> str:
    """Return two numbers in words, with as many digits as tell them apart, and at least six."""
    if x is None or y is None:
        return f"{x} against {y}"
    digits = next((n for n in range(6, 18) if f"{x:.{n}g}" != f"{y:.{n}g}"), None)
    if digits is None:  # whole numbers that are one as floats
        return f"{x} against {y}"
    return f"{x:.{digits}g} against {y:.{digits}g}"


def _broken(tensor: Mapping[str, Any]) -> str:
    """Return what is not finite, as counts where they are known, else the statistics that are not."""
    counts = [f"{tensor[key]} {key.removesuffix('_count')}" for key in NOT_FINITE if tensor.get(key)]
    if counts:
        return ", ".join(counts)
    found = ((key, number(tensor.get(key))) for key in ("Max", "Min", "Norm"))
    bad = [key for key, value in found if isinstance(value, float) and not math.isfinite(value)]
    return f"{', '.join(bad)} not finite" if bad and "finite_max" not in tensor else ""


def as_float(value: Any) -> float | None:
    """Return a statistic as a float, infinite where no float is so large; None where it is no number."""
    found = number(value)
    if not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def _finite(value: Any) -> float | None:
    near = as_float(value)
    return number(value) if near is not None and math.isfinite(near) else None


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape)) if shape else "()"


_PLACE = re.compile(r"'?(cpu|cuda|gpu|npu|xpu|mps|Ascend)(:\d+)?'?$")
_ENDS = frozenset(repr(range_of(dtype)[1]) for dtype in ("float16", "bfloat16", "float32", "float64"))


@frozen
class ArgumentDifference:
    """Name an argument that two calls got with another value.

    slot: its place in the record, as ``input_kwargs.eps``.
    a, b: the values in words; empty where one side has no such argument.
    """

    slot: str
    a: str
    b: str

    @property
    def of_setting(self) -> bool:
        """Return whether it only names the device of a run, or the largest number of its dtype (masks hold that)."""
        place = _PLACE.match(self.a) and _PLACE.match(self.b)
        return bool(place) or {self.a.lstrip("-"), self.b.lstrip("-")} <= _ENDS

    def __str__(self) -> str:
        return f"{self.slot} {self.a or 'not given'} against {self.b or 'not given'}"


#: (slot, value) of each.
Arguments = Sequence[tuple[str, Any]]


def compare_arguments(a: Arguments, b: Arguments, *, both: bool = False) -> tuple[ArgumentDifference, ...]:
    """Return the arguments that differ, in the order of the slots of ``a``.

    both: count only those that are given on both sides (two frameworks write defaults in other ways).
    """
    if a == b:
        return ()
    one, two = dict(a), dict(b)
    slots = [slot for slot in one if slot in two] if both else list(dict.fromkeys([*one, *two]))
    found = []
    for slot in slots:
        x, y = plain(one.get(slot)), plain(two.get(slot))
        if x != y:
            words = (repr(value) if slot in given else "" for value, given in ((x, one), (y, two)))
            found.append(ArgumentDifference(slot, *words))
    return tuple(found)


_BLOCK = 1 << 20
Array = npt.NDArray[Any]


@frozen
class Elements:
    """Say how far the elements of two tensors are apart.

    max_abs: the largest difference.
    max_rel: the largest difference of an element, relative to the larger magnitude of the two.
    relative: the largest difference, relative to the largest magnitude in either tensor.
    cosine: of the angle between the two as vectors; 1 where both are zero.
    max_ulp: the largest difference in units of the last place of the dtype; 0 for integers.
    apart: the norm of the difference, relative to the larger norm: the level, where elements are known.
    """

    max_abs: float
    max_rel: float
    relative: float
    cosine: float
    max_ulp: float
    apart: float


def compare_elements(a: Array, b: Array, dtype: str) -> Elements:
    """Return the differences of two arrays of one shape.

    a, b: the values; NaN equals NaN, and infinities equal those of their sign.
    dtype: what the tensors were computed in, for the unit of the last place.
    """
    one, two = np.ravel(a), np.ravel(b)
    blocks = [slice(i, i + _BLOCK) for i in range(0, one.size, _BLOCK)]
    largest = max((_largest(x[s]) for x in (one, two) for s in blocks), default=0.0)
    eps, scale = eps_of(dtype), largest or 1.0
    max_abs = max_rel = max_ulp = dot = aa = bb = dd = 0.0
    for s in blocks:
        x, y = _wide(one[s]), _wide(two[s])
        with np.errstate(all="ignore"):
            apart = _apart(one[s], two[s], x, y)
            bigger = np.maximum(np.abs(x), np.abs(y))
            share = apart / bigger
            share[apart == 0.0] = 0.0
            max_abs = max(max_abs, float(apart.max(initial=0.0)))
            max_rel = max(max_rel, float(share.max(initial=0.0)))
            if eps:
                _, exponent = np.frexp(np.where(np.isfinite(bigger), bigger, 1.0))
                ulps = apart / np.ldexp(eps, exponent - 1)
                max_ulp = max(max_ulp, float(ulps.max(initial=0.0)))
            both = np.isfinite(x) & np.isfinite(y)
            x, y = (np.where(both, values, 0.0) / scale for values in (x, y))
            apart = np.where(both, apart, np.where(apart > 0.0, np.inf, 0.0)) / scale
            dot += float(np.real(np.vdot(x, y)))
            aa += float(np.real(np.vdot(x, x)))
            bb += float(np.real(np.vdot(y, y)))
            dd += float(np.dot(apart, apart))
    cosine = dot / math.sqrt(aa * bb) if aa and bb else (1.0 if aa == bb else 0.0)
    relative = 0.0 if max_abs == 0.0 else (max_abs / largest if largest else math.inf)
    norm = 0.0 if dd == 0.0 else (math.sqrt(dd / max(aa, bb)) if max(aa, bb) else math.inf)
    return Elements(max_abs, max_rel, relative, cosine, max_ulp, norm)


def _apart(one: Array, two: Array, x: Array, y: Array) -> Array:
    """Return the differences of elements as floats: 0 where they are equal, or both NaN; infinite where one is.

    x, y: the same elements as `_wide` returns them.
    """
    kind = np.result_type(one, two).kind
    if kind in "iu":  # not all whole numbers are a float64, but each difference is near one, and only 0 is 0
        one, two = (values.astype(f"{kind}8") for values in (one, two))
        exact: Array = np.maximum(one, two) - np.minimum(one, two)
        return exact.view(np.uint64).astype(np.float64)
    apart: Array = np.abs(x - y)
    apart[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def _wide(x: Array) -> Array:
    """Return the values in a dtype that holds their differences."""
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def _largest(x: Array) -> float:
    wide = np.abs(_wide(x))
    wide = wide[np.isfinite(wide)]
    return float(wide.max(initial=0.0))
