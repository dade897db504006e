"""Name the columns of the exported tables (spec/export.md), and turn tensors and arguments of a record into cells."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from probe_format.jsonio import dumps, finite, number
from probe_format.schema import why_lost
from probe_format.statistics import KEYS, NOT_FINITE, TABLE, WHOLE
from probe_format.values import plain

from probe_analysis.calls.tabled import KEY_OF
from probe_analysis.compare.dtypes import dtype_name

SCHEMA_VERSION = "1.1"
"""The first number changes when a column changes its meaning or goes, the second when one is added."""

Type = Literal["text", "integer", "double", "boolean", "texts", "integers"]
"""The type of a column's values; ``texts`` and ``integers`` are lists."""
Columns = Mapping[str, Type]
"""Name of a column -> its type, in their order."""


def _columns(**types: Type) -> Columns:
    return {name.removesuffix("_"): kind for name, kind in types.items()}


#: What each row says of the record that it belongs to.
_RECORD = _columns(
    run="text", record="text", call_order="integer", kind="text", direction="text", prefix="text", api="text",
    module="text", class_="text", call_number="integer", parent="text", line="text", source_file="text",
    source_line="integer",
)  # fmt: skip

#: Where in its record a tensor or another value stands.
_PLACE = _columns(
    slot_order="integer", slot="text", role="text", path="text", gradient="boolean", recompute="boolean",
    backward_pass="integer",
)  # fmt: skip

_STATISTICS: Columns = {x.key.lower(): "integer" if x.kind == "count" else "double" for x in TABLE}
TENSOR = _columns(
    type="text", dtype="text", original_dtype="text", shape="integers", elements="integer",
    **{name: kind for name, kind in _STATISTICS.items() if name not in KEYS}, finite="boolean",
    **{name: kind for name, kind in _STATISTICS.items() if name in KEYS}, requires_grad="boolean",
    checksum="text", data_name="text", data_crc32="text", file="text", device_mesh="text",
    placements="texts", global_shape="integers", layout="text", shared_with="texts", unsupported="text",
    lost="text", extra="text",
)  # fmt: skip
"""What is said of a tensor."""

TABLES: Mapping[str, Columns] = {
    "tensors": {**_RECORD, **_PLACE, **TENSOR},
    "arguments": {**_RECORD, **_PLACE, **_columns(type="text", value="text", number="double", json="text")},
    "records": {**_RECORD, **_columns(
        modules="texts", stack="text", tensors="integer", arguments="integer", label="text", raised="text",
        incomplete="boolean", in_backward="boolean", partial="boolean", error="text", extra="text",
    )},
    "runs": _columns(
        run="text", folder="text", mode="text", distributed="boolean", source="text", framework="text",
        mindspore="text", tool="text", task="text", level="text", format_version="text", checksum="text",
        records="integer", tensors="integer", arguments="integer", left_out="integer", error="text", header="text",
        report="text",
    ),
}  # fmt: skip
"""Table of dumped steps -> its columns. ``step`` and ``rank`` are in the names of the folders."""

WATCHED = _columns(
    step="integer", time="double", kind="text", module="text", tensor="text", elements="integer", norm="double",
    nan_count="integer", inf_count="integer",
)  # fmt: skip
"""The columns of the table `watch`."""


_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def _double(value: Any) -> float | None:
    """Return a statistic as a double; None where that is not the same number."""
    value = number(value)
    if isinstance(value, float):
        return value
    return float(value) if isinstance(value, int) and abs(value) <= 2**53 else None


def _integer(value: Any) -> int | None:
    """Return a whole number that 64 bits hold; else None."""
    if isinstance(value, float) and value.is_integer():  # JSON does not tell 3.0 from 3
        value = int(value)
    return value if type(value) is int and _SMALLEST <= value <= _LARGEST else None


def _integers(value: Any) -> list[int] | None:
    found = [_integer(item) for item in value] if isinstance(value, list) else [None]
    return None if None in found else [x for x in found if x is not None]


def json_text(value: Any) -> str:
    """Return a value as JSON; numbers that are not finite as the texts that Probe's files have for them."""
    try:
        return dumps(_strict(value)).decode()
    except (TypeError, ValueError, RecursionError):
        return json.dumps(repr(value))  # too deep for either encoder


def _strict(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return {key: _strict(item) for key, item in value.items()} if isinstance(value, dict) else value


def _of(kind: type) -> Callable[[Any], Any]:
    """Return a function that keeps a value of this class, and turns any other into None."""
    return lambda value: value if isinstance(value, kind) else None


#: Type of a column -> the function that makes its cell of a value; None where the value does not fit.
_MAKERS: Mapping[Type, Callable[[Any], Any]] = {
    "text": _of(str),
    "integer": _integer,
    "double": _double,
    "boolean": _of(bool),
    "texts": lambda x: x if isinstance(x, list) and all(isinstance(item, str) for item in x) else None,
    "integers": _integers,
}
_TEXTS = {"device_mesh": json_text, "layout": lambda x: x if isinstance(x, str) else json_text(x)}
#: Key of a tensor object -> its column, and what makes the cell.
_CELLS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    KEY_OF.get(name, name): (name, _TEXTS.get(name, _MAKERS[kind]))
    for name, kind in TENSOR.items()
    if name
    not in ("dtype", "elements", "finite", "file", "extra")  # which are made of several keys, or of none
}


def tensor_cells(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a tensor object.

    What has no column, or is not what its column holds (an integer that a double would round), is under ``extra``.
    """
    cells: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in tensor.items():
        if value is None:
            continue
        column, convert = _CELLS.get(key, ("", lambda _: None))
        cell = convert(value)
        if cell is None:
            extra[key] = value
            if key in WHOLE:
                cells[column] = _nearest(value)
        else:
            cells[column] = cell
    cells["dtype"] = dtype_name(str(tensor["dtype"]))
    cells["finite"] = _all_finite(cells)
    if "shape" in cells:
        cells["elements"] = _integer(math.prod(cells["shape"]))
    if extra:
        cells["extra"] = json_text(extra)
    return cells


def _nearest(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int) else None  # the closest, as no double is this integer
    except OverflowError:
        return None


def _all_finite(cells: Mapping[str, Any]) -> bool | None:
    """Return whether every element is finite; None where that is not told: msprobe's norm overflows in the dtype."""
    if any(cells.get(count) for count in NOT_FINITE):
        return False
    extremes = [cells[key] for key in ("max", "min") if cells.get(key) is not None]
    return all(map(math.isfinite, extremes)) if extremes else None


def argument_cells(value: Any) -> dict[str, Any]:
    encoded = isinstance(value, dict) and isinstance(value.get("type"), str)
    content = why_lost(value) or (plain(value) if not encoded or "value" in value else None)
    kind = value["type"] if encoded else "None" if value is None else type(value).__name__
    cells: dict[str, Any] = {"type": kind, "json": json_text(value)}
    if content is not None:
        cells["value"] = content if isinstance(content, str) else json_text(content)
    if isinstance(content, int | float) or (isinstance(content, str) and cells["type"] in _NUMBERS):
        cells["number"] = _double(content)
    return cells


#: Types whose value is a text where the number is not finite.
_NUMBERS = ("float", "float16", "float32", "float64")


_FRAME = re.compile(r"File (?P<file>.+?), line (?P<line>\d{1,18}), in ", re.DOTALL)


def source_cells(line: str) -> dict[str, Any]:
    """Return the cells of a line of source, ``File a.py, line 3, in f, x = g(x)``; none for an empty one."""
    if not line:
        return {}
    found = _FRAME.match(line)
    parts = {} if found is None else {"source_file": found["file"], "source_line": int(found["line"])}
    return {"line": line, **parts}
