"""Describe a value as JSON and a file: the parts that are the same for every framework."""

from __future__ import annotations

from .arrays import array_json
from .common_leaf import CommonLeaf
from .file_names import FileNames
from .leaf import Leaf, Placement
from .run_error import RunError, is_handed_on
from .step_files import StepFiles
from .tensor_options import TensorOptions, options_of, summarise
from .two_at_once import LARGE, run_both

__all__ = [
    "LARGE",
    "CommonLeaf",
    "FileNames",
    "Leaf",
    "Placement",
    "RunError",
    "StepFiles",
    "TensorOptions",
    "array_json",
    "is_handed_on",
    "options_of",
    "run_both",
    "summarise",
]
