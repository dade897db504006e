"""Describe the tensors of a step as a dump would, and count their files instead of writing them."""

from typing import Any

from probe_runtime.describe import StepFiles, TensorOptions
from probe_runtime.planning import CountedFiles

from probe_mindspore.tensors.leaf import TensorLeaf


class PlannedLeaf(TensorLeaf):
    """Describe tensors with their own numbers, so that what is equal is known as in a dump."""

    def __init__(self, options: TensorOptions, *given: Any, files: CountedFiles, **more: Any) -> None:
        """Begin a step, as `TensorLeaf` does. files: gets the tensor files."""
        super().__init__(options, *given, **more)
        write = files.once if options.share else files.write
        self._files = StepFiles(TensorOptions(options.directory, share=False), *given, write=write)
