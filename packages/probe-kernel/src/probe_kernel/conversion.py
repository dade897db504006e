"""Converting one ``bin`` file into files that numpy, torch or nobody else reads, named as msaccucmp names them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.arrays import npy_bytes, pt_bytes, write_parts
from probe_format.errors import FormatError, ProbeError

from .binfile import BinFile, Section, open_bin
from .filename import FileName, parse_file_name
from .layouts import convert
from .opdebug import SIZE, opdebug_json

__all__ = ["TYPES", "Conversion", "Outcome", "bin_files", "convert_file", "short_name"]

Array = npt.NDArray[Any]
Type = Literal["npy", "bin", "pt", "msnpy"]
TYPES: tuple[Type, ...] = ("npy", "bin", "pt", "msnpy")
_LONGEST = 255


@frozen
class Conversion:
    """What to make. target: a layout of `layouts.TARGETS`; empty leaves each tensor as it lies on the device.

    shape: stands in for the tensors' own shapes, where a file does not tell them. only: ``input.0`` and the like;
    empty means all.
    """

    type: Type = "npy"
    target: str = ""
    shape: tuple[int, ...] = ()
    only: tuple[str, ...] = ()


@frozen
class Outcome:
    """What became of one file. written: new files. faults: what could not be converted, and why.

    renamed: (new name, name) of files whose names were too long.
    """

    path: Path
    written: tuple[Path, ...] = ()
    faults: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


def convert_file(path: Path, out: Path, how: Conversion) -> Outcome:
    """Convert every tensor of ``path`` into ``out``, a folder that exists. Never raises for a bad file."""
    written: list[Path] = []
    faults: list[str] = []
    renamed: list[tuple[str, str]] = []
    try:
        file = open_bin(path)
    except (ProbeError, OSError) as error:
        return Outcome(path, faults=(_said(path, error),))
    done = 0
    for section in file.sections:
        if how.only and str(section) not in how.only:
            continue
        done += 1
        try:
            name, parts = _made(file, section, how)
            short = short_name(name)
            if short != name:
                renamed.append((short, name))
            write_parts(out / short, parts)
            written.append(out / short)
        except (ProbeError, OSError, ValueError, MemoryError) as error:
            faults.append(_said(path, error))
    if how.only and not done:
        there = ", ".join(map(str, file.sections)) or "nothing"
        faults.append(f"{path}: there is no {' or '.join(how.only)} in it, but {there}.")
    return Outcome(path, tuple(written), tuple(faults), tuple(renamed))


def short_name(name: str) -> str:
    """``name``, or where a file system would not take it, a name made from it, with its ending."""
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + Path(name).suffix


def _made(file: BinFile, section: Section, how: Conversion) -> tuple[str, list[bytes | memoryview]]:
    head = f"{file.path.name}.{section}"
    tensor = section.tensor
    if tensor is None:
        return f"{head}.bin", [_memory(section.raw())]
    if section.io == "output" and section.size == SIZE and file.path.name.startswith("Opdebug."):
        text = json.dumps(opdebug_json(section.raw()), indent=4)
        return f"{head}.json", [text.encode()]
    values = section.load()
    shown = tensor.format
    if how.target:
        values = convert(values, tensor.format, how.target, how.shape or tensor.original_shape)
        shown = how.target
    if values.ndim == 0:
        values = values.reshape(1)
    if how.type == "bin":
        dims = "_".join(map(str, values.shape))
        return f"{head}.{dims}.{values.dtype.name}.{shown}.bin", [_memory(values)]
    if how.type == "msnpy":
        return _for_mindspore(file, section, shown), npy_bytes(values)
    if how.target:
        head = f"{head}.{'x'.join(map(str, values.shape))}"
    if how.type == "pt":
        return f"{head}.pt", pt_bytes(values.dtype.name, values.shape, _memory(values))
    return f"{head}.npy", npy_bytes(values)


def _for_mindspore(file: BinFile, section: Section, layout: str) -> str:
    """The name that MindSpore gives a tensor file: the operator's own, not that of its scopes."""
    name = parse_file_name(file.path.name)
    operator = file.header.op_name.rpartition("/")[2] or name.op_name
    plain = FileName(
        name.op_type, operator.replace(".", "_"), name.task, name.stream, name.timestamp,
        section.io, section.slot, layout, "", None, ".npy",
    )  # fmt: skip
    return str(plain)


def _memory(values: Array) -> memoryview:
    flat: Any = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _said(path: Path, error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        text = "is too large for this machine's memory"
    return text if str(path) in text else f"{path}: {text}"


def bin_files(source: Path) -> Iterator[Path]:
    """Every file at or below ``source`` whose name is that of a ``bin`` file, in order. Raises FormatError."""
    if source.is_file():
        yield source
        return
    if not source.is_dir():
        raise FormatError(f"There is no file or folder {source}.")
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            try:
                if parse_file_name(name).kind == "bin":
                    yield Path(folder, name)
            except FormatError:
                continue
