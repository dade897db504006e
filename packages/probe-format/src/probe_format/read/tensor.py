"""Read one tensor of a record: its statistics, and its values where they were saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

from probe_format import layout
from probe_format.errors import DamagedError, FormatError
from probe_format.excerpts import brief
from probe_format.jsonio import number
from probe_format.plain_files import in_memory, is_file, refuse_link
from probe_format.schema.finite import non_finite
from probe_format.schema.form import path_text
from probe_format.statistics import WHOLE
from probe_format.values import ValuePath

if TYPE_CHECKING:
    from probe_format.tensors.pack import Entry

    from .record import Record

Amount = float | int | bool | None
#: Characters of paths that no name of a file has.
_OUTSIDE = frozenset("/\\\0")


@frozen(slots=False, eq=False, repr=False)
class Tensor:
    """Give access to one tensor in a record: its statistics, and its values where they were saved.

    keys: its place in the record, as ``("input_args", 0)``.
    """

    record: Record
    keys: ValuePath
    json: Mapping[str, Any]

    def __repr__(self) -> str:
        get = self.json.get  # repr() must not raise on a damaged file
        shape = ", ".join(map(str, shape)) if isinstance(shape := get("shape"), list) else "?"
        numbers = ", ".join(f"{key} {number(get(key))}" for key in WHOLE if key in self.json)
        return f"<{self.name}: {get('dtype')}[{shape}]{', ' if numbers else ''}{numbers}>"

    @property
    def slot(self) -> str:
        """Return ``input_args.0``, ``output.1``, ``parameters.weight``, ... (spec/dump.md)."""
        return path_text(self.keys)

    @property
    def name(self) -> str:
        """Return the record's name and the slot."""
        return f"{self.record.name}.{self.slot}" if self.keys else self.record.name

    @property
    def type(self) -> str:
        """Return ``torch.Tensor``, ``mindspore.Tensor``, ``numpy.ndarray``, ..."""
        return str(self.json["type"])

    @property
    def dtype(self) -> str:
        """Return the framework's name of the dtype: ``torch.float32``, ``Float32``, ``float32``."""
        return str(self.json["dtype"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape; of a DTensor the local one."""
        return tuple(map(int, self.json["shape"]))

    def statistic(self, key: str) -> Amount:
        """Return one number of the tensor object (spec/statistics.md): None when absent, null or not a number."""
        value = number(self.json.get(key))
        return value if isinstance(value, bool | int | float) else None

    @property
    def max(self) -> Amount:
        """Return the largest element (of the absolute values when complex, ``any`` when bool). NaN if there is one."""
        return self.statistic("Max")

    @property
    def min(self) -> Amount:
        """Return the smallest element (of the absolute values when complex, ``all`` when bool). NaN if there is one."""
        return self.statistic("Min")

    @property
    def mean(self) -> Amount:
        """Return the arithmetic mean (of the absolute values when complex)."""
        return self.statistic("Mean")

    @property
    def norm(self) -> Amount:
        """Return the Euclidean norm. msprobe's overflows in the tensor's dtype, and has a sign for a 0-d tensor."""
        return self.statistic("Norm")

    @property
    def non_finite(self) -> str:
        """Return in words what is not finite (``3 NaN, 1 +Inf``); empty when all elements are finite, or unknown."""
        return non_finite(self.json)

    @property
    def requires_grad(self) -> bool | None:
        """Return the flag of the tensor, None where the framework has no such flag."""
        value = self.json.get("requires_grad")
        return value if isinstance(value, bool) else None

    @property
    def checksum(self) -> str | None:
        """Return the checksum under ``md5`` (a CRC-32 in spite of the key); None without summary_mode md5 or xor."""
        value = self.json.get("md5")
        return value if isinstance(value, str) else None

    @property
    def shared_with(self) -> tuple[str, ...]:
        """Return the other slots of a backward record that hold the same sum (spec/dump.md), not to be added again."""
        value = self.json.get("shared_with")
        return tuple(slot for slot in value if isinstance(slot, str)) if isinstance(value, list) else ()

    @property
    def file(self) -> Path | None:
        """Return the path of its file, or of the pack that it is in; None when its values were not saved.

        Raises FormatError when its data_name leads out of the dump.
        """
        place = self.place
        return place if place is None or isinstance(place, Path) else place.path

    @property
    def place(self) -> Path | Entry | None:
        """Return the path of its file, or its entry in a pack: `probe_format.tensors.opened` opens both.

        None, and raises, as `file`.
        """
        name = self.json.get("data_name")
        if name is None:
            return None
        if not isinstance(name, str) or name in ("", ".", "..") or not _OUTSIDE.isdisjoint(name):
            raise FormatError(f"{self.name}: the data_name {brief(name)} is not a file name.")
        rank = self.record.rank
        path = rank.tensor_folder / name
        return path if is_file(path) else rank.packed.get(name, path)

    def load(self) -> npt.NDArray[np.generic]:
        """Read the values: from ``.npy`` with numpy alone, from ``.pt`` with torch (weights_only=True).

        numpy has no bfloat16, float8 and complex32: they are returned as float32 and complex64, which hold each of
        their values exactly (`load_bits` returns their bits). A sparse tensor returns its stored values, a
        quantised one its integers (dequantised from a dump by msprobe). `load_torch` returns the tensor as it was
        saved.

        Raises FormatError when nothing was saved, DamagedError when the file is missing or not whole,
        ProbeError when torch is needed and not installed.
        """
        from probe_format.tensors import files, npy_file  # here, as most who open a dump read no tensor file

        path = self._saved()
        with in_memory(str(path)):
            if path.suffix == ".npy":
                return npy_file.load_npy(path)
            values = _as_numpy(files.load_pt(path), path)
            if self.dtype == "torch.complex32" and values.dtype == np.uint8:  # as bytes (spec/layout.md)
                halves = values.reshape(-1).view(np.float16).astype(np.float32)
                return halves.view(np.complex64).reshape(self.shape)
            return values

    def load_bits(self) -> npt.NDArray[np.generic]:
        """Read the bits of a bfloat16 (as uint16) or 8-bit float (as uint8) tensor, in its shape.

        Raises FormatError when it has another dtype, or a value that this dtype cannot hold; else like `load`.
        """
        from probe_format.tensors.narrow_floats import bits_of, narrow_name  # as in load

        name = narrow_name(self.dtype)
        if name is None:
            raise FormatError(f"{self.name} is {self.dtype}, which numpy has itself: use load().")
        values = self.load()
        if values.dtype != np.float32:
            wanted = f"the float32 that {self.dtype} has there"
            raise FormatError(f"{self.file} holds {values.dtype}, not {wanted}.")
        try:
            return bits_of(values.astype(np.float32, copy=False), name)
        except ValueError as error:
            raise FormatError(f"{self.file} is not of {self.dtype}: {error}.") from error

    def load_torch(self) -> Any:
        """Read the ``torch.Tensor`` in a ``.pt`` file, as it was saved. Raises like `load`."""
        from probe_format.tensors import files  # as in load

        path = self._saved()
        if path.suffix == ".npy":
            raise FormatError(f"{path} is a numpy file: use load().")
        with in_memory(str(path)):
            return files.load_pt(path)

    def _saved(self) -> Path | Entry:
        path = self.place
        if path is None:
            remedy = "use task 'tensor', or tensor_list, to have tensors saved"
            why = self.json.get("lost") or ("it has no elements" if 0 in self.shape else remedy)
            raise FormatError(f"{self.name} was not saved to a file: {why}.")
        if isinstance(path, Path) and not is_file(path):
            where = f"{layout.TENSORS} beside dump.json is the folder that is looked into"
            raise DamagedError(f"{self.name}: its file {path} is missing ({where}).")
        if isinstance(path, Path):
            refuse_link(path)
        else:
            path.check(self.json.get("data_crc32"))
        return path


def _as_numpy(value: Any, path: Path | Entry) -> npt.NDArray[np.generic]:
    try:
        if value.is_quantized:
            value = value.dequantize()
        kind = str(value.dtype).removeprefix("torch.")
        if kind == "bfloat16" or kind.startswith("float8"):
            value = value.float()
        elif kind == "complex32":
            value = value.cfloat()
        return np.asarray(value.detach().resolve_conj().resolve_neg().numpy())
    except (AttributeError, TypeError, RuntimeError, NotImplementedError) as error:
        raise FormatError(
            f"{path} holds a {type(value).__name__} that numpy cannot hold ({error}); load_torch() gives it "
            "as it was saved."
        ) from error
