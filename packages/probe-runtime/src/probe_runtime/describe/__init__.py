"""Describe a value as JSON and a file: the parts that are the same for every framework."""

from .arrays import array_json
from .file_queue import LARGE, run_both
from .leaf import Leaf
from .placement import FileNames, Placement
from .run_error import RunError, is_handed_on
from .step_files import StepFiles
from .tensor_options import TensorOptions, options_of, summarise

__all__ = [
    "LARGE", "FileNames", "Leaf", "Placement", "RunError", "StepFiles", "TensorOptions", "array_json",
    "is_handed_on", "options_of", "run_both", "summarise",
]  # fmt: skip
