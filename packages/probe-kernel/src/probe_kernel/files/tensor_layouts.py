"""Convert tensors from the layouts of the device (NC1HWC0, FRACTAL_NZ, ...) to NCHW, ND, NCDHW and the like.

Every conversion is one transpose and one reshape, so the values are copied once at most. The device pads channels
to a multiple of c0 (16 elements of 2 bytes, 32 of 1 byte). The original shape says how much to cut off. It may be
written in any order of axes (NCHW, NHWC, HWCN); the first that fits the device's shape is taken.
"""

import math
from itertools import islice
from typing import Any

import numpy.typing as npt
from attrs import frozen
from probe_format.errors import FormatError
from probe_format.suggest import did_you_mean

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
#: The layouts that can be converted to.
TARGETS = ("NCHW", "NHWC", "HWCN", "ND", "NCDHW", "NDHWC", "DHWCN")
#: The orders of axes that a shape may have, the likeliest first.
_ORDERS = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN", "DHWNC")}
#: The axes of each layout on the device. C1 and C0 are the outer and inner part of C, as N1 and N0 of N.
_DEVICE = {
    "NC1HWC0": ("N", "C1", "H", "W", "C0"),
    "NC1HWC0_C04": ("N", "C1", "H", "W", "C0"),
    "NDC1HWC0": ("N", "D", "C1", "H", "W", "C0"),
    "FRACTAL_Z": ("C1", "H", "W", "N1", "N0", "C0"),
    "FRACTAL_Z_3D": ("D", "C1", "H", "W", "N1", "N0", "C0"),
    **{name: tuple(name) for names in _ORDERS.values() for name in names},
}
_PLAIN = frozenset(name for names in _ORDERS.values() for name in names)
Sizes = dict[str, int]


def convert(array: Array, source: str, target: str, original: Shape = ()) -> Array:
    """Return ``array`` converted from one layout to another; a view where numpy can give one.

    array: the values in the layout ``source``.
    target: one of `TARGETS`.
    original: the tensor's own shape, without padding; () where it is not known: then the padding stays.

    Raises FormatError when the layout cannot be converted, or the shapes do not fit.
    """
    found = in_order(array, source, target, original)
    return found.view.reshape(found.joined)[tuple(map(slice, found.cut))].reshape(found.shape)


@frozen(eq=False)
class Ordered:
    """Hold values in the order of another layout, without a copy.

    view: the values; its dimensions are the parts of the axes (C1 and C0 of C), the parts of one axis side by side.
    parts: for each axis, the number of its parts.
    cut: the size of each axis without its padding.
    shape: the shape of the converted tensor.
    """

    view: Array
    parts: Shape
    cut: Shape
    shape: Shape

    @property
    def joined(self) -> Shape:
        sizes = iter(self.view.shape)
        return tuple(math.prod(islice(sizes, n)) for n in self.parts)


def in_order(array: Array, source: str, target: str, original: Shape = ()) -> Ordered:
    """Return the values in the order of the layout ``target``; see `convert`."""
    if target not in TARGETS:
        raise FormatError(f"There is no conversion to {target!r}. {did_you_mean(target, TARGETS)}".rstrip())
    # The device calls every unpadded tensor NCHW, whatever its number of dimensions.
    called, source = source, "ND" if source in _PLAIN and array.ndim != len(source) else source
    if target in (called, source):
        return Ordered(array, (1,) * array.ndim, array.shape, array.shape)
    what = f"{source} {list(array.shape)}"
    if source == "FRACTAL_NZ":
        found = _from_nz(array, original, what)
        if target == "ND" or len(found.shape) != 4:
            return found  # matrices have no axes to reorder: msaccucmp writes them as they are, too
        whole = convert(array, source, "ND", original)
        return in_order(whole, "NCHW", target)  # as msaccucmp does: the order of its axes is unknown
    if source != "ND" and source not in _DEVICE:
        near = did_you_mean(source, [*_DEVICE, *TARGETS])
        raise FormatError(
            f"The layout {source!r} is not known here; its values can be read as they lie. {near}"
        )
    if source in _DEVICE and array.ndim != len(_DEVICE[source]):
        array = _parted(array, source, original, what)
    axes = _DEVICE.get(source, ())
    letters = {axis[0] for axis in axes}
    if target == "ND":
        order, sizes = _order(array, axes, original, what)
    else:
        order, sizes = target, _order(array, axes, original, what)[1] if letters == set(target) else {}
    if letters != set(order):
        raise FormatError(f"{what} has no axes called {', '.join(order)}: no conversion to {target}.")
    return _turned(array, axes, order, sizes)


def _turned(array: Array, axes: tuple[str, ...], order: str, sizes: Sizes) -> Ordered:
    """Transpose to ``order`` with the parts of each axis side by side. sizes: axis -> its size without padding."""
    parts = [[i for i, axis in enumerate(axes) if axis[0] == letter] for letter in order]
    parts = [sorted(found, key=lambda i: axes[i], reverse=True) for found in parts]  # C1 before C0
    whole = array.transpose([i for found in parts for i in found])
    joined = [math.prod(array.shape[i] for i in found) for found in parts]
    cut = tuple(min(sizes.get(letter, size), size) for letter, size in zip(order, joined, strict=True))
    return Ordered(whole, tuple(map(len, parts)), cut, cut)


def _order(array: Array, axes: tuple[str, ...], original: Shape, what: str) -> tuple[str, Sizes]:
    """Return the order of axes of the original shape, and its size along each; no sizes without that shape."""
    padded: Sizes = {}
    inner: Sizes = {}
    for axis, size in zip(axes, array.shape, strict=True):
        padded[axis[0]] = padded.get(axis[0], 1) * size
        if axis[1:] == "0":
            inner[axis[0]] = size
    orders = _ORDERS.get(len(padded), ())
    if not original:
        return orders[0] if orders else "", {}
    for order in orders:
        if len(original) != len(order):
            continue
        sizes = dict(zip(order, original, strict=True))
        if all(_pads(sizes[axis], size, inner.get(axis, 1)) for axis, size in padded.items()):
            return order, sizes
    if not axes:
        return "", {}
    raise _unfit(original, what)


def _pads(size: int, padded: int, inner: int) -> bool:
    """Return whether ``size`` padded to the next multiple of ``inner``, and no further, is ``padded``."""
    return 0 <= padded - size < inner


def _unfit(original: Shape, what: str) -> FormatError:
    """Return the error for an original shape that would cut off more than padding, or that has other axes."""
    return FormatError(
        f"The original shape {list(original)} does not fit {what}: padded to whole blocks it is another size. "
        "Give the tensor's true shape (--shape), or leave the target out, which keeps every value as it lies."
    )


def _parted(array: Array, source: str, original: Shape, what: str) -> Array:
    """Split the outer axes by the original shape: FRACTAL_Z usually has them joined to one."""
    axes = _DEVICE[source]
    joined = axes.index("N1") if "N1" in axes else 0
    if not joined or array.ndim != 4:
        wanted = f"{len(axes)}" if not joined or source.endswith("3D") else f"4 or {len(axes)}"
        raise FormatError(f"{source} has {wanted} dimensions, and this tensor {list(array.shape)}.")
    outer, no, ni, c0 = array.shape
    for order in _ORDERS[joined + 1]:
        if len(original) != len(order) or not c0 or not ni:
            break
        sizes = dict(zip(order, original, strict=True))
        sizes["C1"] = -(-sizes["C"] // c0)
        apart = tuple(sizes[axis] for axis in axes[:joined])
        if math.prod(apart) == outer and 0 <= no * ni - sizes["N"] < ni:
            return array.reshape(*apart, no, ni, c0)
    basis = f"the original shape {list(original)}" if original else "without its original shape, this"
    raise FormatError(f"{what} has {', '.join(axes[:joined])} in one; {basis} does not say which is which.")


def _from_nz(x: Array, original: Shape, what: str) -> Ordered:
    """Join the tiles of matrices: (..., columns outer, rows outer, rows inner, columns inner)."""
    if x.ndim < 4:
        raise FormatError(f"FRACTAL_NZ has 4 dimensions or more, and this tensor {list(x.shape)}.")
    *outer, c1, no, ni, c0 = x.shape
    k = len(outer)
    tiles, parts = x.transpose(*range(k), k + 1, k + 2, k, k + 3), (*(1,) * k, 2, 2)
    joined = *outer, no * ni, c1 * c0
    if not original:
        return Ordered(tiles, parts, joined, joined)
    rows, columns = original[-2:] if len(original) > 1 else (1, original[0])  # a vector is one row
    fits = _pads(rows, no * ni, ni) and _pads(columns, c1 * c0, c0)
    if not fits or math.prod(original[:-2]) != math.prod(outer):
        raise _unfit(original, what)
    return Ordered(tiles, parts, (*outer, rows, columns), original)
