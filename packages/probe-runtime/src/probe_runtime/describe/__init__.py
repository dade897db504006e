"""A value as JSON and a file: what the tensor description of every framework shares."""

from __future__ import annotations

from .leaf import Leaf
from .placement import Slot
from .step_files import StepFiles
from .tensor_options import TensorOptions, array_json, options_of, summarise

__all__ = ["Leaf", "Slot", "StepFiles", "TensorOptions", "array_json", "options_of", "summarise"]
