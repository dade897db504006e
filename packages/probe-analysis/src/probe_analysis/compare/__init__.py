"""Compare two tensors, or two calls' other arguments: by statistics, checksums and values."""

from __future__ import annotations

from probe_analysis.compare.tolerance import dtype_name, eps_of, range_of

from .arguments import ArgumentDifference, compare_arguments
from .distance import Distance, as_float, comparable, distance
from .elements import Elements, compare_elements
from .tolerance import Tolerance

__all__ = [
    "ArgumentDifference",
    "Distance",
    "Elements",
    "Tolerance",
    "as_float",
    "comparable",
    "compare_arguments",
    "compare_elements",
    "distance",
    "dtype_name",
    "eps_of",
    "range_of",
]
