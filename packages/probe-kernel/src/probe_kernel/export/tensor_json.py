"""Encode one tensor of a kernel as an object of dump.json, and save its values as a file."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import INFINITY, MINUS_INFINITY, finite
from probe_format.tensors import file_crc32, npy_bytes, npy_header, stats_json, stats_of, write_parts

from probe_kernel.files.dtypes import find_dtype, is_numeric
from probe_kernel.read.kernel import TensorSlot
from probe_kernel.read.statistic_line import Row
from probe_kernel.read.statistics import NOT_FINITE


def tensor_json(slot: TensorSlot, framework: str, file: Path | None) -> dict[str, Any]:
    """Return the tensor object; without values it has the numbers of statistic.csv.

    framework: ``mindspore`` or ``pytorch``.
    file: where to save the values; None does not save them.

    Raises FormatError (DamagedError) when the values cannot be read, OSError when they cannot be saved.
    """
    if slot.part is None:
        head = head_json(slot.dtype, slot.shape or (), framework)
        return head if slot.row is None else {**head, **_row_json(slot.row)}
    array = slot.load()
    out = head_json(slot.dtype or array.dtype.name, array.shape, framework)
    if is_numeric(slot.dtype):
        out.update(stats_json(stats_of(array)))
    else:
        out["unsupported"] = f"{slot.dtype}: only its codes are known"
    if file is not None:
        out |= {"data_name": file.name, "data_crc32": _save(slot.file, array, file)}
    return out


def head_json(dtype: str, shape: tuple[int, ...], framework: str) -> dict[str, Any]:
    if framework == "pytorch":
        known = find_dtype(dtype)
        plain = dtype if known is None else known.name
        return {"type": "torch.Tensor", "dtype": f"torch.{plain}", "shape": list(shape)}
    return {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(shape)}


def _save(source: Path | None, array: npt.NDArray[Any], target: Path) -> str:
    """Save the values as a .npy that numpy reads: as a link where the dumper's own file is one. Return its CRC-32."""
    if source is not None and source.suffix == ".npy" and not npy_header(source).narrow:
        target.unlink(missing_ok=True)  # left by an export that was stopped, or a link to somewhere else
        try:
            os.link(source.resolve(), target)  # a link to a relative link would lead nowhere from there
            return file_crc32(target)
        except OSError:  # another file system
            pass
    return f"{write_parts(target, npy_bytes(np.asarray(array, order='C'))):08x}"


def _row_json(row: Row) -> dict[str, Any]:
    """Return a line of statistic.csv as a tensor object; its extremes are those of the finite elements."""
    values = row.values
    counts = [values.get(key) for key in NOT_FINITE]
    top, low = _number(values.get("max")), _number(values.get("min"))
    out = {"Max": top, "Min": low, "Mean": _number(values.get("avg")), "Norm": _number(values.get("l2norm"))}
    if all(isinstance(count, int) for count in counts) and any(counts):
        nan, above, below = counts
        out["Max"] = "NaN" if nan else INFINITY if above else MINUS_INFINITY if top is None else top
        out["Min"] = "NaN" if nan else MINUS_INFINITY if below else INFINITY if low is None else low
        out["Mean"] = "NaN" if nan or (above and below) else INFINITY if above else MINUS_INFINITY
        out |= {"nan_count": nan, "posinf_count": above, "neginf_count": below}
        out |= {"finite_max": top, "finite_min": low}
    if isinstance(values.get("md5"), str):
        out["file_md5"] = values["md5"]  # the key md5 holds a CRC-32 (spec/values.md)
    return out


def _number(value: Any) -> Any:
    return finite(value) if isinstance(value, float) and not math.isfinite(value) else value
