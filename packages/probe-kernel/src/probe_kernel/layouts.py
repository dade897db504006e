"""From the layouts of the device to those that people read: NC1HWC0, FRACTAL_NZ, ... to NCHW, ND, NCDHW.

Every conversion is reshapes and transposes of a view, so nothing is copied until somebody uses the result.
The device pads channels to a multiple of c0 (16 for 2 bytes, 32 for 1): the padding is cut off by the original
shape, which may be written in any order of axes (NCHW, NHWC, HWCN): the one that fits the device's is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.errors import FormatError
from probe_format.suggest import did_you_mean

__all__ = ["TARGETS", "convert", "logical"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
#: What can be converted to.
TARGETS = ("NCHW", "NHWC", "HWCN", "ND", "NCDHW", "NDHWC", "DHWCN")
_AXES = {
    4: ("NCHW", "NHWC", "HWCN", "CHWN"),
    5: ("NCDHW", "NDHWC", "DHWCN", "DHWNC"),
}
_PLAIN = {name for names in _AXES.values() for name in names}


def convert(array: Array, source: str, target: str, original: Shape = ()) -> Array:
    """``array``, which is in the layout ``source``, in the layout ``target``; a view where numpy can give one.

    original: the tensor's own shape, in which there is no padding; () where it is not known: then the padding
    stays. Raises FormatError where there is no way from one to the other, and where the shapes do not fit.
    """
    if target not in TARGETS:
        raise FormatError(f"There is no conversion to {target!r}. {did_you_mean(target, TARGETS)}".rstrip())
    if source == target:
        return array
    plain, axes = logical(array, source, original)
    if target == "ND":  # the tensor as its owner sees it
        return _as_original(plain, axes, original)
    if not axes or len(axes) != len(target):
        shape = list(array.shape)
        raise FormatError(
            f"A tensor in {source} {shape} has no axes called {', '.join(target)}: no conversion to {target}."
        )
    return plain.transpose([axes.index(axis) for axis in target])


def logical(array: Array, source: str, original: Shape = ()) -> tuple[Array, str]:
    """The tensor without padding, and what its axes are: ``NCHW``, ``NCDHW``, or empty for ND.

    Raises FormatError for a layout that is not known, or a shape that is none in it.
    """
    if source in _PLAIN:
        return (array, source) if array.ndim == len(source) else (array, "")
    if source == "ND":
        return array, ""
    known = _LAYOUTS.get(source)
    if known is None:
        near = did_you_mean(source, [*_LAYOUTS, *TARGETS])
        raise FormatError(
            f"The layout {source!r} is not known here; its values can be read as they lie. {near}"
        )
    ranks, unpack = known
    if array.ndim not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise FormatError(f"{source} has {wanted} dimensions, and this tensor {list(array.shape)}.")
    return unpack(array, original)


def _nc1hwc0(x: Array, original: Shape) -> tuple[Array, str]:
    n, c1, h, w, c0 = x.shape
    sizes = _fit(original, "NCHW", {"N": n, "H": h, "W": w}, {"C": c1 * c0}, f"NC1HWC0 {list(x.shape)}")
    return x.transpose(0, 1, 4, 2, 3).reshape(n, c1 * c0, h, w)[:, : sizes.get("C")], "NCHW"


def _ndc1hwc0(x: Array, original: Shape) -> tuple[Array, str]:
    n, d, c1, h, w, c0 = x.shape
    exact = {"N": n, "D": d, "H": h, "W": w}
    sizes = _fit(original, "NCDHW", exact, {"C": c1 * c0}, f"NDC1HWC0 {list(x.shape)}")
    return x.transpose(0, 2, 5, 1, 3, 4).reshape(n, c1 * c0, d, h, w)[:, : sizes.get("C")], "NCDHW"


def _fractal_z(x: Array, original: Shape) -> tuple[Array, str]:
    if x.ndim == 4:  # (c1 h w, n outer, n inner, c0)
        return _fractal_z4(x, original)
    c1, h, w, no, ni, c0 = x.shape
    padded = {"N": no * ni, "C": c1 * c0}
    sizes = _fit(original, "NCHW", {"H": h, "W": w}, padded, f"FRACTAL_Z {list(x.shape)}")
    whole = x.transpose(3, 4, 0, 5, 1, 2).reshape(no * ni, c1 * c0, h, w)
    return whole[: sizes.get("N"), : sizes.get("C")], "NCHW"


def _fractal_z4(x: Array, original: Shape) -> tuple[Array, str]:
    c1hw, no, ni, c0 = x.shape
    for order in _AXES[4]:
        if len(original) != 4:
            break
        sizes = dict(zip(order, original, strict=True))
        c1 = -(-sizes["C"] // c0)
        if c1 * sizes["H"] * sizes["W"] == c1hw and 0 <= no * ni - sizes["N"] < ni:
            return _fractal_z(x.reshape(c1, sizes["H"], sizes["W"], no, ni, c0), original)
    told = f"the original shape {list(original)}" if original else "without its original shape, this"
    raise FormatError(
        f"FRACTAL_Z {list(x.shape)} has C1, H and W in one; {told} does not say which is which."
    )


def _fractal_z_3d(x: Array, original: Shape) -> tuple[Array, str]:
    dc1hw, no, ni, c0 = x.shape
    for order in _AXES[5]:
        if len(original) != 5:
            break
        s = dict(zip(order, original, strict=True))
        c1 = -(-s["C"] // c0)
        if s["D"] * c1 * s["H"] * s["W"] == dc1hw and 0 <= no * ni - s["N"] < ni:
            parts = x.reshape(s["D"], c1, s["H"], s["W"], no, ni, c0).transpose(4, 5, 1, 6, 0, 2, 3)
            whole = parts.reshape(no * ni, c1 * c0, s["D"], s["H"], s["W"])
            return whole[: s["N"], : s["C"]], "NCDHW"
    raise FormatError(
        f"FRACTAL_Z_3D {list(x.shape)} needs an original shape that fits; got {list(original)}."
    )


def _fractal_nz(x: Array, original: Shape) -> tuple[Array, str]:
    *outer, c1, no, ni, c0 = x.shape
    k = len(outer)
    whole = x.transpose(*range(k), k + 1, k + 2, k, k + 3).reshape(*outer, no * ni, c1 * c0)
    if not original:
        return whole, ""
    rows, columns = original[-2:] if len(original) > 1 else (1, original[0])  # a vector is one row
    if rows > no * ni or columns > c1 * c0 or _product(original[:-2]) != _product(tuple(outer)):
        raise FormatError(f"The original shape {list(original)} does not fit FRACTAL_NZ {list(x.shape)}.")
    cut = whole[..., :rows, :columns]
    found = cut.reshape(original)
    return found, "NCHW" if found.ndim == 4 else ""  # as msaccucmp takes it; nobody tells the order


def _fit(
    original: Shape, axes: str, exact: dict[str, int], padded: dict[str, int], what: str
) -> dict[str, int]:
    """The size of each axis by its letter, whatever order the original shape is in; {} where there is none."""
    if not original:
        return {}
    if len(original) == len(axes):
        for order in _AXES[len(axes)]:
            sizes = dict(zip(order, original, strict=True))
            fits = all(sizes[a] == n for a, n in exact.items()) and all(
                0 < sizes[a] <= n for a, n in padded.items()
            )
            if fits:
                return sizes
    raise FormatError(f"The original shape {list(original)} does not fit {what}.")


def _as_original(plain: Array, axes: str, original: Shape) -> Array:
    """In the order of axes that the original shape has."""
    if not axes or not original or plain.shape == original:
        return plain
    for order in _AXES.get(len(axes), ()):
        turned = plain.transpose([axes.index(a) for a in order])
        if turned.shape == original:
            return turned
    return plain


def _product(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


#: layout -> (how many dimensions it has on the device, how to read them)
_LAYOUTS: dict[str, tuple[tuple[int, ...], Callable[[Array, Shape], tuple[Array, str]]]] = {
    "NC1HWC0": ((5,), _nc1hwc0),
    "NC1HWC0_C04": ((5,), _nc1hwc0),
    "NDC1HWC0": ((6,), _ndc1hwc0),
    "FRACTAL_Z": ((4, 6), _fractal_z),
    "FRACTAL_Z_3D": ((4,), _fractal_z_3d),
    "FRACTAL_NZ": ((4, 5, 6, 7, 8), _fractal_nz),
}
