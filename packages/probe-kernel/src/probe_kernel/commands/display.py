"""Format kernels, tensors and operators as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from probe_format.errors import FormatError

from probe_kernel.graph.model import Type
from probe_kernel.read.kernel import Kernel, TensorSlot
from probe_kernel.read.statistics import NOT_FINITE, Value
from probe_kernel.trace.find_line import Hit


def times(kernel: Kernel) -> str:
    return f"  (execution {kernel.count})" if kernel.count else ""


def slot_line(slot: TensorSlot) -> str:
    try:
        shape = "?" if slot.shape is None else ",".join(map(str, slot.shape))
        found: Mapping[str, Value] = slot.statistics
    except (FormatError, OSError) as error:
        return f"{slot!s:<10} {slot.dtype}: {error}"
    words = [f"{key} {_number(found[key])}" for key in ("max", "min", "avg", "l2norm") if key in found]
    words += [f"{key} {found[key]}" for key in NOT_FINITE if found.get(key)]
    return f"{slot!s:<10} {f'{slot.dtype}[{shape}]':<24} {slot.format:<14} {'  '.join(words)}".rstrip()


def _number(value: Value) -> str:
    return "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def hit_lines(hit: Hit, step: int | None = None) -> Iterator[str]:
    operator = hit.operator
    what = "  (gradient)" if operator.gradient else ""
    rank = "" if hit.rank is None else f"rank {hit.rank}, "
    yield f"{rank}graph {hit.graph}: {operator.op}  {operator.full_name}{what}"
    yield f"  in   {_types(operator.inputs)}"
    yield f"  out  {_types(operator.outputs)}"
    if operator.is_kernel and any(t.format not in ("", "DefaultFormat") for t in operator.device_outputs):
        yield f"  on the device: in {_types(operator.device_inputs)}, out {_types(operator.device_outputs)}"
    if hit.shared:
        yield (
            f"  (the graph has this line for {hit.shared + 1} {operator.op} operators: MindSpore keeps one line for "
            "all calls of a Cell or function. Tell them apart by their order and shapes)"
        )
    if hit.how == "order":
        yield "  (the number in its files' names is another: matched by name without number, types and order)"
    if hit.cautions:
        yield f"  (matched by its name alone, take care: {'; '.join(hit.cautions)})"
    if hit.near:
        more = f" and {len(hit.near) - 5} more" if len(hit.near) > 5 else ""
        yield (
            f"  nothing is surely its own; these files have its name but for the number, or another size: "
            f"{', '.join(hit.near[:5])}{more}"
        )
    elif not hit.kernels:
        yield "  nothing of it was dumped"
    for kernel in hit.kernels:
        if step in (None, kernel.folder.number):
            yield f"  {kernel.folder.label}{times(kernel)}: {kernel.name}"
            for slot in kernel.slots:
                yield f"    {slot_line(slot)}"
                if slot.file is not None:
                    yield f"      {slot.file}"


def _types(types: Sequence[Type]) -> str:
    return ", ".join(_type(one) for one in types) or "nothing"


def _type(one: Type) -> str:
    shape = "" if one.shape is None else f"[{','.join(map(str, one.shape))}]"
    layout = f" {one.format}" if one.format and one.format != "DefaultFormat" else ""
    return f"{one.dtype}{shape}{layout}" if one.dtype else one.text.strip("<>")


def is_bad(slot: TensorSlot) -> bool:
    try:
        found = slot.statistics
    except (FormatError, OSError):
        return True  # its content is unknown, so the user should look
    return any(map(found.get, NOT_FINITE))
