"""Convert Ascend's ``bin`` files to npy, pt or raw files, with several threads and in another layout if wanted; they
are named as msaccucmp or MindSpore would name them.
"""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen
from probe_format.errors import FormatError, ProbeError, UsageError
from probe_format.tensors import npy_bytes, npy_head, pt_bytes

from probe_kernel.files.bin_file import BinFile, Section, open_bin
from probe_kernel.files.dtypes import dtype_of
from probe_kernel.files.tensor_layouts import convert, in_order
from probe_kernel.output_folder import folder_in
from probe_kernel.read.file_name import is_file_name, parse_file_name
from probe_kernel.read.find import walk
from probe_kernel.read.listing import NO_TRUE_NAME, list_files, read_mapping
from probe_kernel.read.overflow import is_opdebug, opdebug_json

from .destination import Destination
from .reordered import LARGE, Reordered

Array = npt.NDArray[Any]
Type = Literal["npy", "bin", "pt", "msnpy"]
TYPES: tuple[Type, ...] = get_args(Type)
# Each worker holds a tensor and up to two copies of it, so their number bounds the memory.
_MOST_WORKERS = 8


@frozen
class Conversion:
    """Describe the form to convert to.

    type: the kind of file.
    target: a layout of `tensor_layouts.TARGETS`; empty keeps the device's layout.
    shape: replaces the tensors' own shapes, for files that do not have them.
    only: the tensors to convert, as ``input.0``; empty for all.
    """

    type: Type = "npy"
    target: str = ""
    shape: tuple[int, ...] = ()
    only: tuple[str, ...] = ()


@frozen
class ConvertOutcome:
    """Hold the result for one file.

    written: new files.
    faults: what could not be converted, and why.
    """

    path: Path
    written: tuple[Path, ...] = ()
    faults: tuple[str, ...] = ()


def convert_file(
    path: Path, out: Path, how: Conversion, name: str = "", destination: Destination | None = None
) -> ConvertOutcome:
    """Convert every tensor of ``path``. A bad file raises nothing: its faults are in the outcome.

    out: a folder that exists.
    how: the form to convert to.
    name: the file's true name, where mapping.csv has it.
    destination: shared by all files of one conversion.
    """
    destination = destination or Destination()
    try:
        file = open_bin(path)
    except (ProbeError, OSError, MemoryError) as error:
        return ConvertOutcome(path, faults=(_message(path, error),))
    written: list[Path] = []
    faults = [*file.problems]
    chosen = [section for section in file.sections if not how.only or str(section) in how.only]
    for section in chosen:
        try:
            called, content = _made(file, name or path.name, section, how)
            written.append(destination.write(out, called, path, content))
        except (ProbeError, OSError, ValueError, MemoryError) as error:
            faults.append(_message(path, error))
    if how.only and not chosen:
        there = ", ".join(map(str, file.sections)) or "nothing"
        faults.append(f"{path}: there is no {' or '.join(how.only)} in it, but {there}.")
    return ConvertOutcome(path, tuple(written), tuple(faults))


Content = list[bytes | memoryview] | Reordered


def _made(file: BinFile, name: str, section: Section, how: Conversion) -> tuple[str, Content]:
    head = f"{name}.{section}"
    tensor = section.tensor
    if tensor is None:
        return f"{head}.bin", [_memory(section.raw())]
    if section.io == "output" and name.startswith("Opdebug.") and is_opdebug(raw := section.raw()):
        return f"{head}.json", [json.dumps(opdebug_json(raw), indent=4).encode()]
    original, shown = how.shape or tensor.original_shape, how.target or tensor.format
    found = _large(section, how.target, original) if how.target and how.type in ("npy", "msnpy") else None
    if found is None:
        values = section.load()
        if how.target:
            values = convert(values, tensor.format, how.target, original)
        if how.type == "pt":
            head = f"{head}.{'x'.join(map(str, values.shape or (1,)))}" if how.target else head
            return f"{head}.pt", pt_bytes(values.dtype.name, values.shape, _memory(values))
        values = np.atleast_1d(values)
        if how.type == "bin":
            dims = "_".join(map(str, values.shape if how.target else (values.size,)))
            # The tensor's own dtype where the bytes are its codes, else that of the values.
            dtype = values.dtype.name if dtype_of(tensor.dtype).numeric else tensor.dtype
            return f"{head}.{dims}.{dtype}.{shown}.bin", [_memory(values)]
    content, shape = found or (npy_bytes(values), values.shape)
    if how.type == "msnpy":
        return _mindspore_name(file, name, section, shown), content
    return f"{head}.{'x'.join(map(str, shape))}.npy" if how.target else f"{head}.npy", content


def _mindspore_name(file: BinFile, name: str, section: Section, shown: str) -> str:
    """Return the name of MindSpore's own file: it has the operator's own name, without its scopes."""
    parsed = parse_file_name(name)
    operator = (file.op_name.rpartition("/")[2] or parsed.op_name).replace(".", "_")
    place = evolve(parsed, op_name=operator, io=section.io, slot=section.slot)
    return str(evolve(place, format=shown, dtype="", shape=None, suffix=".npy"))


def _large(
    section: Section, target: str, original: tuple[int, ...]
) -> tuple[Reordered, tuple[int, ...]] | None:
    """Return a large tensor that is read only while it is written, and its shape; None where it is to be loaded."""
    tensor, dtype = section.tensor, section.dtype_in_file()
    if tensor is None or dtype is None or section.size < LARGE:
        return None
    if tensor.format == "FRACTAL_NZ" and target != "ND":
        return None  # it may have to be joined first
    base = np.empty(tensor.shape, dtype)  # takes no memory, as nothing is ever written to it
    order = in_order(base, tensor.format, target, original)
    found = Reordered(npy_head(dtype, order.shape), order, base, section.path, section.offset)
    lies_so = order.view.flags.c_contiguous and order.cut == order.joined
    return None if lies_so or not found.is_close else (found, order.shape)


def _memory(values: Array) -> memoryview:
    flat: Any = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return memoryview(flat)


def _message(path: Path, error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        text = "is too large for this machine's memory"
    return text if str(path) in text else f"{path}: {text}"


def bin_files(source: Path) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the ``bin`` files at or below ``source`` with their true names, and sentences on those that lost theirs.

    A ``source`` that is a file is taken as a bin file, whatever its name. Raises FormatError when ``source`` does not
    exist, OSError when a folder cannot be opened.
    """
    if source.is_file():
        name = read_mapping(source.parent)[0].get(source.name, source.name)
        if name == source.name or is_file_name(name):
            return [(source, name)], []
        return [(source, source.name)], [f"{source}: {NO_TRUE_NAME}; it keeps its own."]
    if not source.is_dir():
        raise FormatError(f"There is no file or folder {source}.")
    files: list[tuple[Path, str]] = []
    problems: list[str] = []
    for folder, _, _ in walk(source):
        here = list_files(folder)
        files += [(path, str(name)) for path, name in here.files if name.kind == "bin"]
        problems += [f"{folder}: {lost}" for lost in here.lost]
    return files, problems


def convert_all(
    files: Iterable[tuple[Path, str]], source: Path, out: Path, how: Conversion, workers: int | None = None
) -> Iterator[ConvertOutcome]:
    """Convert ``files`` to ``out``, in the same folders as below ``source``; yield the outcomes as they are ready.

    files: as `bin_files` returns them.
    workers: threads; by default one for each core, at most 8. Reading, writing and numpy's copies let others run.

    Each worker has two files at most in its queue, so memory is bounded by the largest files. A conversion that is
    stopped early (Ctrl-C) leaves whole files, and their lines in mapping.csv.

    Raises UsageError when ``out`` is the folder of ``source``, or a folder in it is a link; OSError when it cannot be
    made.
    """
    workers = workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
    root = source if source.is_dir() else source.parent
    if out.resolve() == root.resolve():
        raise UsageError("The converted files want a folder of their own: give another -o.")
    destination = Destination()
    with ThreadPoolExecutor(workers, "probe-convert") as pool:
        under_way: set[Future[ConvertOutcome]] = set()
        try:
            for path, name in files:
                folder = folder_in(out, path.parent.relative_to(root))
                under_way.add(pool.submit(convert_file, path, folder, how, name, destination))
                if len(under_way) >= 2 * workers:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in wait(under_way).done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # files already being converted are finished
            raise
