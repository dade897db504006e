"""Run a recorded function again in float64 on the CPU, forward and backward, for probe-analysis.

A function that has no float64 kernel on the CPU raises MindSpore's own error; that is told as the reason.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import mindspore
import numpy as np
import numpy.typing as npt
from mindspore import Tensor
from mindspore._c_expression import typing
from probe_format.errors import ProbeError
from probe_format.values import ValuePath
from probe_runtime.patching import function_of

from .patching.apis import load_apis
from .patching.patches import resolve

Array = npt.NDArray[Any]
Body = Callable[[Sequence[Any]], Mapping[ValuePath, Any]]
#: Sections of the list whose functions compute on this machine alone.
_SECTIONS = frozenset(("functional", "tensor", "mint", "mint_functional"))
_NARROW = frozenset(("Float16", "Float32", "BFloat16"))


@cache
def function(prefix: str, api: str) -> Callable[..., Any]:
    """Return the function that records name ``prefix.api``. Raises ProbeError, with a reason, where there is none."""
    if prefix == "Primitive":
        raise ProbeError("its attributes are not in a dump (Primitive)")
    return function_of((x for x in load_apis() if x.section in _SECTIONS), prefix, api, resolve)


def argument(leaf: Mapping[str, Any]) -> Any:
    """Return an argument of a class of MindSpore's own: a dtype, with float64 for a narrower float.

    leaf: the argument's JSON in the record.

    Raises ProbeError for an argument that its JSON does not give back.
    """
    kind, text = leaf.get("type"), leaf.get("value")
    if kind == "mindspore.dtype" and isinstance(text, str):
        found = vars(mindspore.common.dtype).get("float64" if text in _NARROW else text.lower())
        if isinstance(found, typing.Type):
            return found
    raise ProbeError(f"an argument is not recorded whole: a {kind}")


def run(
    body: Body, inputs: Sequence[Array], wanted: Sequence[int], given: Mapping[ValuePath, Array]
) -> tuple[dict[ValuePath, Array], list[Array | None]]:
    """Return what ``body`` makes of the inputs, and the gradients of some of them.

    body: takes the inputs as tensors; returns path -> result.
    wanted: the indexes of the inputs whose gradients are wanted.
    given: path of a result -> the gradient that it gets.

    Raises ProbeError where the function draws random numbers: a second run then gives others.
    """
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, device_target="CPU")
    first, again = (_arrays(body([Tensor(x) for x in inputs])) for _ in range(2))
    if any(not np.array_equal(x, again[path], equal_nan=x.dtype.kind in "fc") for path, x in first.items()):
        raise ProbeError("it draws random numbers")
    ends = [path for path in first if path in given]
    if not wanted or not ends:
        return first, [None] * len(wanted)

    def differentiated(*leaves: Tensor) -> tuple[Tensor, ...]:
        own = dict(zip(wanted, leaves, strict=True))
        results = body([own[n] if n in own else Tensor(x) for n, x in enumerate(inputs)])
        return tuple(results[path] for path in ends)

    _, backward = mindspore.vjp(differentiated, *(Tensor(inputs[n]) for n in wanted))
    gradients = backward(*(Tensor(given[path]) for path in ends))
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return first, [x.asnumpy() for x in gradients]


def _arrays(results: Mapping[ValuePath, Any]) -> dict[ValuePath, Array]:
    return {path: x.asnumpy() for path, x in results.items() if isinstance(x, Tensor)}
