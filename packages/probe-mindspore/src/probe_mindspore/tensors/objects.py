"""Describe objects of MindSpore other than tensors as JSON (spec/values.md): dtypes, Cells, P2POps and Generators."""

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

from mindspore._c_expression import typing
from mindspore.communication import get_process_group_ranks
from mindspore.nn import Cell
from probe_format.values import UNKNOWN

from .forms import dtype_name

_P2P = "mindspore.mint.distributed.P2POp"


def object_json(value: Any) -> Any:
    """Return the JSON of a MindSpore object; `UNKNOWN` for any other object."""
    if isinstance(value, typing.Type):
        return {"type": "mindspore.dtype", "value": dtype_name(value)}
    cls = type(value)
    if isinstance(value, Cell):  # as the first argument of its own compiled `construct`; msprobe writes null
        return {"type": "mindspore.nn.Cell", "value": f"{cls.__module__}.{cls.__qualname__}"}
    encode = _ENCODERS.get((cls.__module__.partition(".")[0], cls.__name__))
    return UNKNOWN if encode is None else encode(value)


def _p2p(value: Any) -> dict[str, Any]:
    """Return the JSON without the tensor, which the caller adds. msprobe writes no type, but a reader needs one."""
    group = getattr(value, "group", None)
    op = getattr(value, "op", None)
    return {
        "type": _P2P,
        "class_type": _P2P,
        "op": getattr(op, "__name__", op if isinstance(op, str) else str(op)),
        "peer": getattr(value, "peer", None),
        "tag": getattr(value, "tag", None),
        "group_id": None if group is None else _group_id(group),
    }


def _group_id(group: str) -> str:
    """Return the CRC-32 of the ranks of a group, or of its name if this process is not in it."""
    text = str(group)
    with contextlib.suppress(Exception):  # not initialised, or not our group
        text = str(list(get_process_group_ranks(group)))
    return f"{zlib.crc32(text.encode()):08x}"


_ENCODERS: dict[tuple[str, str], Callable[[Any], dict[str, Any]]] = {
    ("mindspore", "P2POp"): _p2p,
    ("mindspore", "Generator"): lambda value: {"type": "mindspore.Generator", "value": None},
}
