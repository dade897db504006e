"""Move each number of a network's inputs, or of its weights, by one unit in the last place."""

from typing import Any, TypeVar

import mindspore as ms
import numpy as np
import numpy.typing as npt
from probe_format.errors import UsageError
from probe_format.tensors import widen
from probe_runtime.session import Move, perturbed

from probe_mindspore.tensors.tensor_view import SPARSE

_T = TypeVar("_T")
#: Dtype -> the dtype of its numbers: of the real part for complex ones.
_PARTS: dict[Any, str] = {getattr(ms, name): name for name in ("float64", "float32", "float16", "bfloat16")}
_PARTS |= {ms.complex64: "float32", ms.complex128: "float64"}


def perturb(value: _T, seed: int = 1234) -> _T:
    """Return a copy of inputs in which each float is the next one that its dtype has, above or below.

    This is the least change that there is: how far a run with such inputs differs is its own noise, so its dump can
    be C in ``probe diff A B --noise C``. Nothing is changed in place, and no random state is used.

    value: a Tensor, a numpy array, or lists, tuples, mappings and dataclasses of them; also ``parameters_dict()``. What
        is not floating is the same object as before, and so is any other object, with all that it holds.
    seed: of the directions; 0 to 2**32 - 1. The same seed moves the same numbers as in ``probe_torch.perturb``.

    Zeros, infinities and NaN stay what they are, and no number becomes one of them. Complex numbers are moved in both
    parts. A Parameter becomes a Parameter of the same name.

    Raises UsageError when nothing in it is floating, and for sparse tensors and 8-bit floats.
    """
    found: _T = perturbed(value, seed, _tensor)
    return found


def _tensor(value: Any, move: Move) -> Any:
    if isinstance(value, SPARSE):
        what = f"perturb moves plain tensors, and this is a {type(value).__name__}"
        raise UsageError(f"{what}. Perturb its values, and make it anew.")
    if not isinstance(value, ms.Tensor):
        return NotImplemented
    if value.dtype not in _PARTS:
        if "float" in str(value.dtype).lower():
            raise UsageError(f"perturb cannot move {value.dtype}. Convert it first, to float16 for instance.")
        return NotImplemented
    found = ms.Tensor(_moved(value.asnumpy(), _PARTS[value.dtype], move), value.dtype)
    if isinstance(value, ms.Parameter):
        return ms.Parameter(found, name=value.name, requires_grad=value.requires_grad)
    return found


def _moved(data: npt.NDArray[Any], part: str, move: Move) -> npt.NDArray[Any]:
    """Return the moved numbers; those of bfloat16, which numpy has not, as float32."""
    plain = np.ascontiguousarray(data).reshape(data.shape)
    if part == "bfloat16":
        return widen(move(plain.view(np.uint16), part), part)
    real = plain[..., None].view(part) if plain.dtype.kind == "c" else plain
    found = move(real.view(f"u{real.dtype.itemsize}"), part).view(real.dtype)
    return found.view(plain.dtype)[..., 0] if plain.dtype.kind == "c" else found
