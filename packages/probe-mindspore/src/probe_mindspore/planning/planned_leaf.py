"""Describe the tensors of a step as a dump would, and count their files instead of writing them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from probe_runtime.describe import StepFiles, TensorOptions, hash_of
from probe_runtime.planning import CountedFiles

from probe_mindspore.tensors.leaf import TensorLeaf


class PlannedLeaf(TensorLeaf):
    """Describe tensors with their own numbers, so that what is equal is known as in a dump."""

    def __init__(self, options: TensorOptions, *given: Any, files: CountedFiles, **more: Any) -> None:
        """Begin a step, as `TensorLeaf` does. files: gets the tensor files."""
        super().__init__(options, *given, **more)
        write = partial(_once, files) if options.share else files.write
        self._files = StepFiles(TensorOptions(options.directory, share=False), *given, write=write)


def _once(files: CountedFiles, name: str, parts: Sequence[bytes | memoryview], folder: object) -> int:
    """Count a file, or a second name of an earlier one with the same bytes, though of a tensor of another dtype."""
    return files.once(name, parts, folder, hash_of(parts))
