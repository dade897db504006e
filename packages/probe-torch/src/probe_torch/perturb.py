"""Move each number of a model's inputs, or of its weights, by one unit in the last place."""

from typing import Any, TypeVar

import torch
from probe_format.errors import UsageError
from probe_runtime.session import Move, perturbed
from torch import nn

_T = TypeVar("_T")
#: Integers of the same size, which numpy has too, by the number of bytes.
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MOVED = (
    "float64", "float32", "float16", "bfloat16",
    "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz",
)  # fmt: skip


def perturb(value: _T, seed: int = 1234) -> _T:
    """Return a copy of inputs in which each float is the next one that its dtype has, above or below.

    The least change that there is: what a run differs by for such inputs is its own noise, so a dump of it is the third
    one of ``probe diff A B --noise C``. Nothing is changed in place, and no random state is used.

    value: a tensor, a numpy array, or lists, tuples, mappings and dataclasses of them; also a ``state_dict()``. What is
        not floating is the same object as before, and so is any other object, with all that it holds.
    seed: of the directions; 0 to 2**32 - 1. The same seed gives the same numbers, on every device.

    Zeros, infinities and NaN stay what they are, and no number becomes one of them. The copy is on the same device,
    with the same strides and ``requires_grad``, and is a leaf. Complex numbers are moved in both parts.

    Raises UsageError when nothing in it is floating, and for tensors that are not plain (sparse, DTensor, meta, other
    subclasses) or of a dtype that has no unit in the last place (float8_e8m0fnu, float4).
    """
    found: _T = perturbed(value, seed, _tensor)
    return found


def _tensor(value: Any, move: Move) -> Any:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return NotImplemented
    _check(value)
    with torch.no_grad():
        plain = value.detach().resolve_conj().resolve_neg()
        parts = torch.view_as_real(plain) if plain.is_complex() else plain
        name = str(parts.dtype).removeprefix("torch.")
        if name not in _MOVED:
            raise UsageError(
                f"perturb cannot move {value.dtype}: it knows {', '.join(_MOVED)}. Convert it first."
            )
        integers = _SAME_SIZE[parts.element_size()]
        bits = parts.cpu().contiguous().view(integers).numpy()
        moved = move(bits.view(f"u{bits.dtype.itemsize}"), name)
        values = torch.from_numpy(moved.view(bits.dtype)).view(parts.dtype)
        found = torch.empty_like(plain)  # with the strides of the original
        found.copy_(torch.view_as_complex(values) if plain.is_complex() else values)
    if isinstance(value, nn.Parameter):
        return nn.Parameter(found, value.requires_grad)
    return found.requires_grad_(value.requires_grad)


def _check(value: torch.Tensor) -> None:
    if type(value) not in (torch.Tensor, nn.Parameter):
        what = f"a {type(value).__name__}"
    elif value.layout != torch.strided or value.is_nested:
        what = "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
    elif value.is_meta:
        what = "a tensor on the meta device, which has no numbers"
    else:
        return
    raise UsageError(
        f"perturb moves plain tensors, and this is {what}. Perturb the plain tensors it is made from."
    )
