"""Parse and build the names of kernel dump files (spec/kernel-files.md)."""

import re
from string import digits
from typing import Any, Literal

from attrs import frozen
from probe_format.errors import FormatError

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
_LAYOUT = r"[A-Za-z][A-Za-z0-9_:]*"
#: Groups are the fields of a FileName; those of another form of name have a digit behind the field.
_NAME = re.compile(
    r"(?P<op_type>[^./\0]+)\.(?:(?P<op_name>[^./\0]+)(?P<suffix>\.json)"
    rf"|(?P<op_name1>[^/\0]+?)\.(?P<task>{_N})(?:\.(?P<stream>{_N}))?\.(?P<timestamp>{_N})"
    r"(?:"
    rf"|\.(?P<io>input|output)\.(?P<slot>{_SLOT})(?:"
    rf"\.(?P<format>{_LAYOUT})(?:\.(?P<dtype>{_WORD}))?(?P<suffix1>\.npy)"
    rf"|\.(?P<format1>{_LAYOUT})\.(?P<dtype1>(?!(?:npy|bin|pt|json|csv)$){_WORD})"
    rf"|\.(?P<shape>{_N}(?:x{_N})*)(?P<suffix2>\.(?:npy|pt))"
    rf"|\.(?P<shape1>{_N}(?:_{_N})*)\.(?P<dtype2>{_WORD})\.(?P<format2>{_LAYOUT})(?P<suffix3>\.bin)"
    r"|(?P<suffix4>\.(?:npy|pt|json))"
    r")"
    rf"|\.(?P<io1>l1buffer|space)\.(?P<slot1>{_SLOT})(?P<suffix5>\.bin)"
    r"|(?P<suffix6>\.csv)"
    r"))",
    re.DOTALL,
)
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
        dims = ("_" if self.suffix == ".bin" else "x").join(map(str, self.shape or ()))
        words = (self.dtype, self.format) if self.suffix == ".bin" else (self.format, self.dtype)
        parts += [part for part in (dims, *words) if part]
        return ".".join(parts) + self.suffix

    @property
    def kind(self) -> Kind:
        """Return the kind of the file, by its name."""
        kinds: dict[str, Kind] = {
            ".npy": "npy", ".pt": "pt", ".csv": "csv", ".bin": "part", ".json": "overflow",
            "": "raw" if self.io else "bin",
        }  # fmt: skip
        return "args" if self.task is None else kinds[self.suffix]


def parse_file_name(text: str) -> FileName:
    """Parse a file's name. Raises FormatError when neither MindSpore, ACL nor msaccucmp writes such names."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise FormatError(
            f"{text!r} is not the name of a kernel dump file. Expected e.g. "
            "'Conv2D.Default_conv1_Conv2D-op0.0.0.1623124369613540.output.0.DefaultFormat.Float32.npy'."
        )
    found: dict[str, Any] = {
        key.rstrip(digits): part for key, part in match.groupdict().items() if part is not None
    }
    found |= {key: int(found[key]) for key in ("task", "stream", "timestamp", "slot") if key in found}
    if "shape" in found:
        found["shape"] = tuple(map(int, re.split("[x_]", found["shape"])))
    return FileName(**found)


def is_file_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def flat(full_name: str) -> str:
    """Return an operator's full name (``Default/conv1/Conv2D-op0``) as file names have it."""
    return _UNSAFE.sub("_", full_name)


def without_number(name: str) -> str:
    """Return an operator's name without the number at its end: ``Conv2D`` of ``Conv2D-op0``."""
    return _NUMBER.sub("", name)
