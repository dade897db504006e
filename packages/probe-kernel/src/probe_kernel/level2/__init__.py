"""Implement level L2 of PrecisionDebugger for the sessions of probe-torch and probe-mindspore.

The configuration is msprobe's: list, step, rank, task, summary_mode and data_mode select kernels here.
"""

from probe_kernel.ascend.acl import find_npu

from .mindspore import MindSporeKernels, description_of, mindspore_notes, mindspore_problems
from .torch import TorchKernels, torch_notes, torch_problems

__all__ = [
    "MindSporeKernels", "TorchKernels", "description_of", "find_npu", "mindspore_notes",
    "mindspore_problems", "torch_notes", "torch_problems",
]  # fmt: skip
