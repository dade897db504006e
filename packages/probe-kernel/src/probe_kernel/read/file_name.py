"""Parse and build the names of kernel dump files (spec/kernel-files.md)."""

from __future__ import annotations

import re
from typing import Literal

from attrs import frozen
from probe_format.errors import FormatError

__all__ = ["MOST_SLOTS", "FileName", "Kind", "flat", "is_file_name", "parse_file_name", "without_number"]

Kind = Literal["npy", "raw", "bin", "pt", "part", "overflow", "args", "csv"]
"""The kind of a file.

npy: a tensor.
raw: a tensor's bytes.
bin: all tensors of a kernel in Ascend's own form.
pt: a tensor for torch.
part: a piece that msaccucmp cut out of a bin file.
overflow: Opdebug JSON.
args: the arguments a kernel was made with.
csv: statistics that the device computed.
"""

#: Limit on slot numbers: a larger number cannot be one, and a list with so many slots would fill the memory.
MOST_SLOTS = 100_000
_SLOT = r"(?:0|[1-9][0-9]{0,4})"
_N = r"(?:0|[1-9][0-9]{0,19})"
_WORD = r"[A-Za-z][A-Za-z0-9_]*"
_HEAD = re.compile(
    rf"(?P<op_type>[^./\0]+)\.(?P<op_name>[^/\0]+?)\.(?P<task>{_N})(?:\.(?P<stream>{_N}))?\.(?P<timestamp>{_N})"
    r"(?P<tail>"
    rf"|\.(?P<io>input|output)\.(?P<slot>{_SLOT})(?:"
    rf"\.(?P<format>[A-Za-z][A-Za-z0-9_:]*)(?:\.(?P<dtype>{_WORD}))?\.npy"
    rf"|\.(?P<raw_format>[A-Za-z][A-Za-z0-9_:]*)\.(?P<raw_dtype>(?!(?:npy|bin|pt|json|csv)$){_WORD})"
    rf"|\.(?P<shape>{_N}(?:x{_N})*)\.(?:npy|pt)"
    rf"|\.(?P<flat>{_N}(?:_{_N})*)\.(?P<bin_dtype>{_WORD})\.(?P<bin_format>[A-Za-z][A-Za-z0-9_:]*)\.bin"
    r"|\.(?:npy|pt|json)"
    r")"
    rf"|\.(?P<piece>l1buffer|space)\.(?P<piece_slot>{_SLOT})\.bin"
    r"|\.csv"
    r")",
    re.DOTALL,
)
_ARGS = re.compile(r"(?P<op_type>[^./\0]+)\.(?P<op_name>[^./\0]+)\.json", re.DOTALL)
_NUMBER = re.compile(r"-op\d+$")
_UNSAFE = re.compile(r"[./\\ ]")


@frozen
class FileName:
    r"""Hold the parts of a file's name; ``str`` gives the name again. A part that a form lacks is None or empty.

    op_type, op_name: as in the name, where ``/``, ``.``, ``\`` and blanks of the operator's full name are ``_``.
    task, stream: the device's numbers; MindSpore 1.5's asynchronous names have no stream.
    timestamp: in microseconds. Files with a kernel's arguments have neither task, stream nor timestamp.
    io: ``input``, ``output``, or msaccucmp's ``l1buffer`` and ``space``; empty where one file has all tensors.
    slot: the index among the inputs or outputs, from 0.
    format: the layout, such as ``NC1HWC0`` or ``DefaultFormat``.
    dtype: of the tensor before it was saved.
    shape: only in names by msaccucmp.
    suffix: ``.npy``, ``.bin``, ``.pt``, ``.json``, ``.csv`` or empty.
    """

    op_type: str
    op_name: str
    task: int | None = None
    stream: int | None = None
    timestamp: int | None = None
    io: str = ""
    slot: int | None = None
    format: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    suffix: str = ""

    def __str__(self) -> str:
        parts = [self.op_type, self.op_name]
        parts += [str(n) for n in (self.task, self.stream, self.timestamp) if n is not None]
        if self.io:
            parts += [self.io, str(self.slot)]
        if self.suffix == ".bin" and self.shape is not None:
            parts += ["_".join(map(str, self.shape)), self.dtype, self.format]
        else:
            if self.shape is not None:
                parts.append("x".join(map(str, self.shape)))
            parts += [part for part in (self.format, self.dtype) if part]
        return ".".join(parts) + self.suffix

    @property
    def kind(self) -> Kind:
        """Return the kind of the file, by its name."""
        if self.task is None:
            return "args"
        if self.suffix == ".json":
            return "overflow"
        if self.suffix == ".bin":
            return "part"
        if self.suffix:
            return "npy" if self.suffix == ".npy" else "pt" if self.suffix == ".pt" else "csv"
        return "raw" if self.io else "bin"

    @property
    def is_parameter(self) -> bool:
        """Return whether this is a weight, an input of the graph or a constant, rather than a kernel's tensor."""
        return self.op_type == "Parameter"


def parse_file_name(text: str) -> FileName:
    """Parse a file's name. Raises FormatError when neither MindSpore, ACL nor msaccucmp writes such names."""
    match = _HEAD.fullmatch(text)
    if match is not None:
        return _tensor_name(match)
    if args := _ARGS.fullmatch(text):
        return FileName(args["op_type"], args["op_name"], suffix=".json")
    raise FormatError(
        f"{text!r} is not the name of a kernel dump file. Expected e.g. "
        "'Conv2D.Default_conv1_Conv2D-op0.0.0.1623124369613540.output.0.DefaultFormat.Float32.npy'."
    )


def _tensor_name(match: re.Match[str]) -> FileName:
    tail = match["tail"]
    suffix = "" if match["raw_dtype"] else next((s for s in _SUFFIXES if tail.endswith(s)), "")
    slot = match["slot"] or match["piece_slot"]
    dims = match["shape"] or match["flat"]
    return FileName(
        op_type=match["op_type"],
        op_name=match["op_name"],
        task=int(match["task"]),
        stream=None if match["stream"] is None else int(match["stream"]),
        timestamp=int(match["timestamp"]),
        io=match["io"] or match["piece"] or "",
        slot=None if slot is None else int(slot),
        format=match["format"] or match["raw_format"] or match["bin_format"] or "",
        dtype=match["dtype"] or match["raw_dtype"] or match["bin_dtype"] or "",
        shape=None if dims is None else tuple(int(n) for n in re.split("[x_]", dims)),
        suffix=suffix,
    )


_SUFFIXES = (".npy", ".bin", ".pt", ".json", ".csv")


def is_file_name(text: str) -> bool:
    """Return whether `parse_file_name` accepts ``text``."""
    return _HEAD.fullmatch(text) is not None or _ARGS.fullmatch(text) is not None


def flat(full_name: str) -> str:
    """Return an operator's full name (``Default/conv1/Conv2D-op0``) as file names have it."""
    return _UNSAFE.sub("_", full_name)


def without_number(name: str) -> str:
    """Return an operator's name without the number at its end: ``Conv2D`` of ``Conv2D-op0``."""
    return _NUMBER.sub("", name)
