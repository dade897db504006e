"""Describe values of torch other than tensors as JSON (spec/values.md): dtype, device, Size, process groups, ..."""

import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from probe_format.jsonio import inert
from probe_format.values import UNKNOWN


def object_json(value: Any) -> Any:
    """Return the JSON of a torch object, `UNKNOWN` for anything else."""
    kind = type(value)  # not looked up: its metaclass may give it no hash
    return next((encode(value) for cls, encode in _ENCODERS.items() if issubclass(kind, cls)), UNKNOWN)


def _named(type_name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {"type": type_name, "value": inert(str(value))}


def _group(value: Any) -> dict[str, Any]:
    ranks = dist.get_process_group_ranks(value)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": _group_id(ranks)}


def _group_id(ranks: list[int]) -> str:
    return f"{zlib.crc32(str(ranks).encode()):08x}"


def _p2p(value: Any) -> dict[str, Any]:
    ranks = dist.get_process_group_ranks(value.group) if value.group is not None else []
    return {
        "type": "torch.distributed.P2POp",
        "class_type": "torch.distributed.P2POp",
        "op": getattr(value.op, "__name__", str(value.op)),
        "peer": value.peer,
        "tag": value.tag,
        "group_id": _group_id(ranks),
    }


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    torch.dtype: _named("torch.dtype"),
    torch.device: _named("torch.device"),  # msprobe writes "cpu:None" for torch.device("cpu")
    torch.Size: lambda v: {"type": "torch.Size", "value": [int(n) for n in v]},
    torch.memory_format: lambda v: {"type": "torch.memory_format", "format": str(v).removeprefix("torch.")},
    torch.layout: _named("torch.layout"),
    torch.Generator: lambda v: {"type": "torch.Generator", "device": str(v.device)},
    torch.SymInt: _named("torch.SymInt"),
    torch.SymFloat: _named("torch.SymFloat"),
    torch.SymBool: _named("torch.SymBool"),
    torch.finfo: _named("torch.finfo"),
    torch.iinfo: _named("torch.iinfo"),
}
if dist.is_available():
    _ENCODERS[dist.ProcessGroup] = _group
    _ENCODERS[dist.P2POp] = _p2p
    _ENCODERS[dist.ReduceOp] = _ENCODERS[dist.ReduceOp.RedOpType] = _named("torch.distributed.ReduceOp")
