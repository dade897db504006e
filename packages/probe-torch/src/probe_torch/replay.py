"""Run a recorded function again in float64 on the CPU, forward and backward, for probe-analysis."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy.typing as npt
import torch
from probe_format.errors import ProbeError
from probe_format.values import ValuePath
from probe_runtime.patching import function_of, resolve_owner

from .patching.apis import load_apis

Array = npt.NDArray[Any]
Body = Callable[[Sequence[Any]], Mapping[ValuePath, Any]]
#: Sections of the list whose functions compute on this machine alone.
_SECTIONS = frozenset(("functional", "tensor", "torch", "vf"))


@cache
def function(prefix: str, api: str) -> Callable[..., Any]:
    """Return the listed function that has this name in records. Raises ProbeError, with the reason, without one."""
    return function_of((x for x in load_apis() if x.section in _SECTIONS), prefix, api, resolve_owner)


def argument(leaf: Mapping[str, Any]) -> Any:
    """Return an argument that is a torch object: a dtype, a device, ...

    leaf: its JSON in the record. Devices become the CPU, float dtypes float64, complex ones complex128.

    Raises ProbeError if the object cannot be made again from it.
    """
    kind, text = leaf.get("type"), leaf.get("value", leaf.get("format"))
    if kind == "torch.device":
        return torch.device("cpu")
    if kind == "torch.Size" and isinstance(text, list):
        return torch.Size(text)
    if kind in _ATTRIBUTES and isinstance(text, str):
        found = vars(torch).get(text.removeprefix("torch."))
        if isinstance(found, torch.dtype) and (found.is_floating_point or found.is_complex):
            return torch.float64 if found.is_floating_point else torch.complex128
        if isinstance(found, _ATTRIBUTES[kind]):
            return found
    raise ProbeError(f"an argument is not recorded whole: a {kind}")


_ATTRIBUTES = {
    "torch.dtype": torch.dtype, "torch.memory_format": torch.memory_format, "torch.layout": torch.layout,
}  # fmt: skip


def run(
    body: Body, inputs: Sequence[Array], wanted: Sequence[int], given: Mapping[ValuePath, Array]
) -> tuple[dict[ValuePath, Array], list[Array | None]]:
    """Return the results of ``body`` on the inputs, and the gradients of some inputs.

    wanted: the indexes of the inputs whose gradients are wanted.
    given: path of a result -> its gradient, from which the backward pass starts.

    Raises ProbeError where the function draws random numbers; the generator's state is put back in any case.
    """
    tensors = [torch.from_numpy(x) for x in inputs]
    leaves = [tensors[n].requires_grad_() for n in wanted]
    for n in wanted:
        tensors[n] = tensors[n].clone()  # a leaf cannot be written in place
    generator = torch.default_generator
    before = generator.get_state()
    try:
        with torch.set_grad_enabled(bool(wanted)), torch.autocast("cpu", enabled=False):
            results = {path: x for path, x in body(tensors).items() if isinstance(x, torch.Tensor)}
            if not torch.equal(generator.get_state(), before):
                raise ProbeError("it draws random numbers")
    finally:
        generator.set_state(before)
    gradients: Sequence[torch.Tensor | None] = [None] * len(wanted)
    ends = [path for path, x in results.items() if path in given and x.requires_grad]
    if wanted and ends:
        starts = [torch.from_numpy(given[path]) for path in ends]
        gradients = torch.autograd.grad([results[path] for path in ends], leaves, starts, allow_unused=True)
    return {path: _numpy(x) for path, x in results.items()}, [
        x if x is None else _numpy(x) for x in gradients
    ]


def _numpy(tensor: torch.Tensor) -> Array:
    whole = tensor.detach().resolve_conj().resolve_neg()
    found: Array = (whole.double() if whole.is_floating_point() else whole).numpy()
    return found
