"""Read kernel dumps: ranks, iterations, kernels and their tensors."""

from .dump import Dump, LazyGraph, Rank, open
from .file_name import FileName
from .find import KernelFolder
from .iteration import Iteration
from .kernel import Kernel, KernelId, TensorSlot
from .loaders import Part
from .overflow import Overflow
from .statistic_csv import Table
from .statistic_line import Row

__all__ = [
    "Dump", "FileName", "Iteration", "Kernel", "KernelFolder", "KernelId", "LazyGraph", "Overflow", "Part",
    "Rank", "Row", "Table", "TensorSlot", "open",
]  # fmt: skip
