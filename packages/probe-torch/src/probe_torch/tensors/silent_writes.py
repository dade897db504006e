"""List everything known to write a tensor's memory without raising its `_version`, and what Probe does about it.

PyTorch raises the version counter so that autograd notices a write. It may not raise it for tensors that autograd
does not follow, and other code writes without PyTorch. Numbers of a tensor are used again only where nothing in
this table can have written it since; every row has a test of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import torch
from attrs import frozen

__all__ = [
    "OWN_OPTIMIZERS",
    "SILENT",
    "WRITING_COLLECTIVES",
    "Answer",
    "Silent",
    "is_silent_op",
    "is_writing_op",
    "tensors_in",
]


class Answer(enum.Enum):
    """State how Probe keeps the numbers right despite a write that does not raise the version."""

    NOT_FOLLOWED = "the tensor is never shared, since autograd does not follow it"
    NOT_ITS_OWN = "the tensor is never shared, since its memory has other owners"
    HANDED_OUT = "its memory is not shared again in this step"
    CALL = "everything known is forgotten after the call"
    REGION = "nothing is shared within, and everything known is forgotten"


@frozen
class Silent:
    """Describe one way to write without raising the version.

    what: the way, in words.
    answer: what Probe does about it.
    places: (owner, names) of the functions that are watched for it.
    """

    what: str
    answer: Answer
    places: tuple[tuple[str, tuple[str, ...]], ...] = ()


#: The methods of a process group that write into their first argument.
WRITING_COLLECTIVES = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "recv", "recv_anysource"),
    *("allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    *("alltoall", "alltoall_base", "gather", "scatter"),
    *("all_gather_single", "all_gather_single_coalesced", "all_to_all_single"),
    *("reduce_scatter_single", "reduce_scatter_single_coalesced"),
)

SILENT = (
    # Measured on torch 2.13. All of these write what needs no gradient.
    Silent("running statistics of F.batch_norm and of the modules on it", Answer.NOT_FOLLOWED),
    Silent("running statistics of torch.native_batch_norm and its kin", Answer.NOT_FOLLOWED),
    Silent("running statistics in TorchScript", Answer.NOT_FOLLOWED),
    Silent("minimum and maximum of a quantisation observer", Answer.NOT_FOLLOWED),
    Silent("state of a fused optimizer", Answer.NOT_FOLLOWED),
    Silent("noise of rrelu_with_noise", Answer.NOT_FOLLOWED),
    Silent("values of _cummax_helper", Answer.NOT_FOLLOWED),
    # Memory that other owners can write.
    Silent("numpy, a buffer, a file or DLPack, which the tensor was made from", Answer.NOT_ITS_OWN),
    Silent("Tensor.numpy() taken before start", Answer.NOT_ITS_OWN),
    Silent("another process, into shared memory", Answer.NOT_ITS_OWN),
    Silent("Tensor.data or DLPack taken before start", Answer.NOT_ITS_OWN),
    Silent("a view in a flat buffer (FSDP1, Megatron, gradients under DDP)", Answer.NOT_ITS_OWN),
    # Access to the bytes, or to a tensor with a version counter of its own.
    Silent(
        "a way to the bytes that is taken while collecting",
        Answer.HANDED_OUT,
        (
            (
                "torch.Tensor",
                (
                    "numpy",
                    "__array__",
                    "untyped_storage",
                    "storage",
                    "_typed_storage",
                    "data_ptr",
                    "mutable_data_ptr",
                    "__dlpack__",
                    "set_",
                    "share_memory_",
                ),
            ),
            ("torch.utils.dlpack", ("to_dlpack",)),
            ("torch", ("to_dlpack",)),
            ("torch._C", ("_to_dlpack", "_to_dlpack_versioned")),
        ),
    ),
    Silent("Tensor.data", Answer.HANDED_OUT),
    Silent(
        "a sparse tensor around the same values",
        Answer.HANDED_OUT,
        (
            (
                "torch",
                (
                    *("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor"),
                    *("sparse_bsc_tensor", "sparse_compressed_tensor", "_sparse_coo_tensor_unsafe"),
                    *("_sparse_csr_tensor_unsafe", "_sparse_compressed_tensor_unsafe"),
                ),
            ),
        ),
    ),
    Silent(
        "collectives, also those of other libraries",
        Answer.HANDED_OUT,
        (("torch.distributed.ProcessGroup", WRITING_COLLECTIVES),),
    ),
    # Calls that write when they are made, be it through detach(), which has the counter of the tensor.
    Silent("Tensor.apply_, map_, map2_", Answer.CALL, (("torch.Tensor", ("apply_", "map_", "map2_")),)),
    Silent(
        "GradScaler.unscale_: found_inf and gradients, which autograd follows with create_graph",
        Answer.CALL,
        (("torch", ("_amp_foreach_non_finite_check_and_unscale_",)),),
    ),
    Silent(
        "fused kernels called by name",
        Answer.CALL,
        (("torch", ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")),),
    ),
    Silent(
        "operators of torch.ops: custom ones, and those that the dispatcher knows as silent",
        Answer.CALL,
        (("torch._ops.OpOverload", ("__call__",)), ("torch._ops.OpOverloadPacket", ("__call__",))),
    ),
    Silent(
        "operators of torch.ops below the counter: within __torch_dispatch__, whose class has been counted instead",
        Answer.CALL,
        (("torch._ops.OpOverload", ("redispatch",)),),
    ),
    Silent(
        "a storage that somebody holds",
        Answer.CALL,
        (("torch.UntypedStorage", ("__setitem__", "fill_", "copy_", "_swap_data_ptr_", "_set_from_file")),),
    ),
    Silent("CUDAGraph.replay", Answer.CALL, (("torch.cuda.CUDAGraph", ("replay",)),)),
    Silent(
        "regions that hide writes from the counter (FSDP2, operators written in C++ style)",
        Answer.CALL,
        (
            ("torch._C._AutoDispatchBelowADInplaceOrView", ("__exit__",)),
            ("torch._C._AutoDispatchBelowAutograd", ("__exit__",)),
            ("torch._C._ExcludeDispatchKeyGuard", ("__exit__",)),
            ("torch._C._autograd", ("_unsafe_set_version_counter",)),
        ),
    ),
    Silent("the step of every optimizer", Answer.REGION),
)

#: The package of the optimizers whose steps raise the version with each write, unless they are fused: within such a
#: step numbers can be shared.
OWN_OPTIMIZERS = "torch.optim."

_TORCHS = ("aten", "prims", "prim", "profiler")


def is_silent_op(op: Any) -> bool:
    """Return whether a call of this operator (OpOverload or its packet) may write without raising a version."""
    name = str(getattr(op, "_qualified_op_name", None) or getattr(op, "_name", ""))
    if name.partition("::")[0] not in _TORCHS:
        return True
    if isinstance(op, torch._ops.OpOverloadPacket):
        return any(is_silent_op(getattr(op, each)) for each in op.overloads())  # type: ignore[no-untyped-call]
    schema = getattr(op, "_schema", None)
    if schema is None or not any(
        a.alias_info is not None and a.alias_info.is_write for a in schema.arguments
    ):
        return False
    has, full = torch._C._dispatch_has_kernel_for_dispatch_key, op.name()
    try:
        return not (has(full, "CompositeImplicitAutograd") or has(full, "ADInplaceOrView"))
    except RuntimeError:  # TorchScript's own, on numbers and lists
        return False


def is_writing_op(op: Any) -> bool:
    """Return whether this operator (OpOverload or its packet) writes into what it is given."""
    if isinstance(op, torch._ops.OpOverloadPacket):
        return any(is_writing_op(getattr(op, each)) for each in op.overloads())  # type: ignore[no-untyped-call]
    schema = getattr(op, "_schema", None)
    return schema is None or bool(schema.is_mutable)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
