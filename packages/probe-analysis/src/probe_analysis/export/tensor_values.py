"""Write the values of tensors as safetensors, the tensors of a rank of a step in one file (spec/export.md).

The library can only write what is in memory all at once. So the file is made here: the space of its header first, then
the values of one tensor after the other, then the header itself, which may end with spaces.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format import Tensor
from probe_format.errors import FormatError
from probe_format.tensors import narrow_name

from probe_analysis.calls.run import Call, Run

from .rows import ExportCount

#: What numpy, or Probe for what numpy lacks, calls a dtype -> what safetensors calls it.
_CODES = {f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_CODES |= {f"float{bits}": f"F{bits}" for bits in (16, 32, 64)} | {"bool": "BOOL", "complex64": "C64"}
_CODES |= {"bfloat16": "BF16", "float8e4m3fn": "F8_E4M3", "float8e5m2": "F8_E5M2"}
#: The most bytes of a header that safetensors reads, and what one tensor takes there besides its name and shape.
_MOST, _ENTRY = 100_000_000, 120


def write_values(runs: Iterable[Run], folder: Path, count: ExportCount) -> None:
    """Write the values of each run: ``step0/rank1.safetensors``, each tensor as ``<record>.<slot>``.

    Raises FormatError when no tensor has a file.
    """
    for run in runs:
        mode, step = run.rank.mode or "", "" if run.rank.step is None else f"step{run.rank.step}"
        try:
            _write(run, folder / mode / step / f"{run.rank.path.name}.safetensors", count)
            count.end(run)
        except FormatError as error:
            count.errors.append((run.label, str(error)))
    if not count.amounts["tensors"] and not count.errors:
        raise FormatError("The dump has no file of a tensor: record with task 'tensor', or with tensor_list.")


def _write(run: Run, path: Path, count: ExportCount) -> None:
    """Write the tensors of a run that have files, the widest dtypes first, so that all are aligned in the file."""
    found, room = list[tuple[int, Call, int]](), _ENTRY
    for call in count.calls(run):
        try:
            saved = _saved(call)
            count.amounts["unsaved"] += len(call.record.tensors) - len(saved)
            for n, tensor in enumerate(saved):
                found.append((_width(tensor), call, n))
                room += len(json.dumps(tensor.name)) + 21 * len(tensor.shape) + _ENTRY
        except FormatError as error:
            count.errors.append((f"{run.label} {call.name}", str(error)))
        count.amounts["records"] += 1
    if not found:
        return
    if room > _MOST:
        raise FormatError(f"{len(found)} tensors are more than a safetensors file can name: use --filter.")
    room += -room % 8
    path.parent.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {"__metadata__": {"run": run.label}}
    with path.open("wb") as file:
        begin = end = file.seek(8 + room)
        for _, call, n in sorted(found, key=lambda each: -each[0]):
            tensor = _saved(call)[n]
            try:
                code, values = _values(tensor)
                values.tofile(file)
            except FormatError as error:
                count.errors.append((f"{run.label} {tensor.name}", str(error)))
                continue
            place = [end - begin, end - begin + values.nbytes]
            name = written = tensor.name.encode("utf-8", "backslashreplace").decode()
            number = 1
            while written in header:  # {"a.b": x, "a": {"b": y}}
                number += 1
                written = f"{name}~{number}"
            header[written] = {"dtype": code, "shape": values.shape, "data_offsets": place}
            end += values.nbytes
            count.amounts["tensors"] += 1
        file.seek(0)
        file.write(room.to_bytes(8, "little") + json.dumps(header).encode().ljust(room))


def _saved(call: Call) -> list[Tensor]:
    """Return the tensors that have a file, or no element, for which none is made."""
    return [each for each in call.record.tensors if each.json.get("data_name") is not None or 0 in each.shape]


def _width(tensor: Tensor) -> int:
    """Return how many bytes an element takes in the file, by what the record says of its dtype."""
    plain = _plain(tensor.dtype)
    bits = re.search(r"\d+", _CODES.get(plain, "F32" if "float" in plain else plain))
    return int(bits[0]) // 8 if bits else 1


def _plain(dtype: str) -> str:
    return dtype.rpartition(".")[2].replace("_", "").lower()


def _values(tensor: Tensor) -> tuple[str, npt.NDArray[Any]]:
    """Return safetensors' name of the dtype, and the elements in C order. Raises FormatError when it has none."""
    if 0 in tensor.shape:
        return _CODES.get(_plain(tensor.dtype), "F32"), np.empty(tensor.shape, np.uint8)
    narrow = narrow_name(tensor.dtype)
    kind = narrow if narrow in _CODES else None
    values = tensor.load() if kind is None else tensor.load_bits()
    code = _CODES.get(kind or values.dtype.name)
    if code is None:
        raise FormatError(f"safetensors has no dtype for {values.dtype}.")
    return code, np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(values.shape)
