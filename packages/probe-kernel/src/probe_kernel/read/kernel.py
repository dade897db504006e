"""Read one execution of a kernel, with its input and output tensors."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt
from attrs import field, frozen
from probe_format.errors import FormatError
from probe_format.plain_files import read_file
from probe_format.schema import parse_object

from .file_name import flat
from .find import KernelFolder
from .loaders import Part
from .statistic_line import Row
from .statistics import Value, numbers


@frozen
class KernelId:
    """Identify a kernel within one folder, by the first parts of its files' names.

    op_type, name: as in the file names, with the separators of the operator's full name replaced (`file_name.flat`).
    task, stream: the device's numbers; 0 where the dumper has none.
    """

    op_type: str
    name: str
    task: int
    stream: int


@frozen(slots=False, eq=False)
class TensorSlot:
    """Represent one input or output of a kernel, with its values, its statistics, or both.

    kernel: the kernel that it belongs to.
    io: ``input`` or ``output``.
    index: which of them, from 0.
    timestamp: in microseconds.
    file, part: where the values are; None where only statistics were saved.
    row: its line of statistic.csv, if there is one.
    """

    kernel: KernelId = field(repr=False)
    io: str
    index: int
    timestamp: int
    file: Path | None = None
    part: Part | None = field(default=None, repr=False)
    row: Row | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.io}.{self.index}"

    @property
    def dtype(self) -> str:
        """Return the dtype that the kernel had, in the dump's spelling: ``BFloat16`` also where the file has float32.

        Empty where neither the file nor the statistics have it; the loaded array has one.
        """
        return (self.part.dtype if self.part else "") or (self.row.dtype if self.row else "")

    @property
    def format(self) -> str:
        """Return the layout: ``DefaultFormat``, ``NCHW``, ``NC1HWC0``, ...; empty where it is unknown."""
        return (self.part.format if self.part else "") or (self.row.format if self.row else "")

    @cached_property
    def shape(self) -> tuple[int, ...] | None:
        """Return the shape from the file's header, else from the statistics, else None.

        Raises DamagedError when the header is damaged.
        """
        shape = self.part.shape() if self.part else None
        return self.row.shape if shape is None and self.row else shape

    def load(self) -> npt.NDArray[Any]:
        """Return the values; bfloat16 and float8 as float32, int4 as int8, uint1 as uint8.

        Raises FormatError when only statistics were saved, DamagedError when the file is not whole, OSError when it
        cannot be read.
        """
        if self.part is None:
            raise FormatError(
                f"{self.kernel.name} {self} was not saved to a file, only its statistics. Dump with saved_data "
                "'tensor' or 'full' to have the values."
            )
        try:
            return self.part.load(self.row.shape if self.row else None)
        except MemoryError:
            raise FormatError(f"{self.file}: {self} is too large for this machine's memory.") from None

    @cached_property
    def statistics(self) -> Mapping[str, Value]:
        """Return numbers by the names of statistic_category (``max``, ``l2norm``, ``nan count``, ...).

        They come from statistic.csv, or are computed from the values where it has no line. Raises like `load`.
        """
        return self.row.values if self.row else numbers(self.load(), dtype=self.dtype)


@frozen(slots=False, eq=False)
class Kernel:
    """Represent one execution of an operator.

    op_type, name, task, stream: as in `KernelId`.
    folder: where it was dumped.
    timestamp: of its first tensor, in microseconds.
    count: which execution in this iteration, from 0.
    slots: its inputs and outputs, by index.
    """

    op_type: str
    name: str
    task: int
    stream: int
    folder: KernelFolder = field(repr=False)
    timestamp: int
    count: int = 0
    slots: tuple[TensorSlot, ...] = field(default=(), repr=False)
    _arguments: Path | None = field(default=None, repr=False)

    @property
    def inputs(self) -> tuple[TensorSlot, ...]:
        """Return the inputs, by index. Indices may be missing: only tensors and numbers are dumped."""
        return tuple(slot for slot in self.slots if slot.io == "input")

    @property
    def outputs(self) -> tuple[TensorSlot, ...]:
        """Return the outputs, by index."""
        return tuple(slot for slot in self.slots if slot.io == "output")

    def slot(self, io: str, index: int = 0) -> TensorSlot:
        """Return one input or output. Raises KeyError, naming the existing ones, when it is not one of them."""
        for slot in self.slots:
            if (slot.io, slot.index) == (io, index):
                return slot
        raise KeyError(f"{self.name} has no {io}.{index}; it has {', '.join(map(str, self.slots))}.")

    @property
    def is_parameter(self) -> bool:
        """Return whether this is a weight, an input of the graph or a constant, and not a kernel."""
        return self.op_type == "Parameter"

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of its tensors."""
        return tuple(dict.fromkeys(slot.file for slot in self.slots if slot.file is not None))

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments that the kernel was made with, empty where not saved.

        Raises FormatError when their file cannot be read.
        """
        path = self._arguments
        return {} if path is None else parse_object(read_file(path), str(path))

    def is_called(self, name: str) -> bool:
        """Return whether ``name`` is its name, its full name, or the last part of it (``Conv2D-op0``)."""
        plain = flat(name)
        return plain == self.name or self.name.endswith(f"_{plain}")
