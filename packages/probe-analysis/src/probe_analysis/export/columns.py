"""Name the columns of the exported tables (spec/export.md says what each holds)."""

from collections.abc import Mapping
from typing import Literal

from attrs import frozen
from probe_format.statistics import KEYS, TABLE

SCHEMA_VERSION = "1.1"
"""The first number changes when a column changes its meaning or goes, the second when one is added."""

Type = Literal["text", "integer", "double", "boolean", "texts", "integers"]


@frozen
class Column:
    """Name a column and the type of its values; ``texts`` and ``integers`` are lists."""

    name: str
    type: Type


def _columns(**types: Type) -> tuple[Column, ...]:
    return tuple(Column(name.removesuffix("_"), kind) for name, kind in types.items())


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

_STATISTICS: Mapping[str, Type] = {x.key.lower(): "integer" if x.kind == "count" else "double" for x in TABLE}
TENSOR = _columns(
    type="text", dtype="text", original_dtype="text", shape="integers", elements="integer",
    **{name: kind for name, kind in _STATISTICS.items() if name not in KEYS}, finite="boolean",
    **{name: kind for name, kind in _STATISTICS.items() if name in KEYS}, requires_grad="boolean",
    checksum="text", data_name="text", data_crc32="text", file="text", device_mesh="text",
    placements="texts", global_shape="integers", layout="text", shared_with="texts", unsupported="text",
    lost="text", extra="text",
)  # fmt: skip
"""What is said of a tensor."""

TABLES: Mapping[str, tuple[Column, ...]] = {
    "tensors": (*_RECORD, *_PLACE, *TENSOR),
    "arguments": (*_RECORD, *_PLACE, *_columns(type="text", value="text", number="double", json="text")),
    "records": (*_RECORD, *_columns(
        modules="texts", stack="text", tensors="integer", arguments="integer", label="text", raised="text",
        incomplete="boolean", in_backward="boolean", partial="boolean", error="text", extra="text",
    )),
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
