"""Read what Probe wrote with nothing but json: the tests' own, simple reader, the same for every framework."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import probe_format

Json = Any
_SECTION_KEYS = {"scope", "list", "tensor_list", "data_mode", "summary_mode", "views", "zero_count", "apis"}
_SCHEMAS = Path(probe_format.__file__).parent / "schema"


def write_config(
    folder: Path, *, task: str = "statistics", level: str = "mix", dump: Path | None = None, **keys: Any
) -> Path:
    """A config.json in msprobe's layout: what belongs to the task goes into the section named as the task."""
    folder.mkdir(parents=True, exist_ok=True)
    section = {key: keys.pop(key) for key in list(keys) if key in _SECTION_KEYS}
    config = {"task": task, "level": level, "dump_path": str(dump or folder / "dump"), **keys, task: section}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def _no_constant(token: str) -> Any:
    raise AssertionError(f"{token} is not JSON")


def strict(path: Path) -> Json:
    """The document; bare NaN and Infinity and repeated keys are errors."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        assert len(found) == len(pairs), f"repeated key in {path}"
        return found

    return json.loads(path.read_text("utf-8"), parse_constant=_no_constant, object_pairs_hook=unique)


def rank_dir(dump: Path, step: int = 0, rank: int | None = None) -> Path:
    return dump / f"step{step}" / ("rank" if rank is None else f"rank{rank}")


def records(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "dump.json")["data"]


def report(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "report.json")


def construct(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "construct.json")


def leaves(value: Json) -> Iterator[dict[str, Json]]:
    """Every tensor object below `value`, in order."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            yield value
            return
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)


def objects(value: Json, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Json]:
    """Every tensor object below `value`, by its place."""
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {k: v for key, item in items for k, v in objects(item, (*path, str(key))).items()}


def tensor_bytes(folder: Path) -> dict[str, bytes]:
    """The tensor files of a rank's folder by their names, in packs or not, by what layout.md says."""
    found: dict[str, bytes] = {}
    for path in sorted((folder / "dump_tensor_data").glob("*")):
        raw, at = path.read_bytes(), 0
        if path.suffix != ".pack":
            found[path.name] = raw
            continue
        while at < len(raw):
            magic, head, size, crc, length, again = struct.unpack_from("<4sIQIHH", raw, at)
            name = raw[at + 24 : at + 24 + length].decode()
            start = -(-(at + 24 + length) // 64) * 64
            if start + size > len(raw):
                break
            content = raw[start : start + size]
            assert magic == b"PrbE" and zlib.crc32(raw[at + 8 : start]) == head
            found[name] = found[content.decode()] if again else content
            assert zlib.crc32(found[name]) == crc
            at = start + size
    return found


def number(value: Json) -> float:
    """A statistic as a float, whether a number or one of the strings for what is not finite."""
    return float(value)


@cache
def _schema(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((_SCHEMAS / f"{name}.schema.json").read_text()))


def validate(folder: Path) -> None:
    """Every JSON file of a rank's directory: strict, and what its schema and its page of the specification say."""
    for name in ("dump", "stack", "construct", "report"):
        problem = next(_schema(name).iter_errors(strict(folder / f"{name}.json")), None)
        assert problem is None, f"{name}.json: {problem}"
    header = set(strict(folder / "dump.json"))
    assert header <= header_keys(), f"not in dump.md: {header - header_keys()}"
    told = [entry["what"] for entry in strict(folder / "report.json")["not_seen"]]
    assert len(told) == len(set(told)), f"two reasons for one thing: {told}"
    counts = strict(folder / "report.json")["counts"]  # a killed run has none
    kinds = {kind for table in ("seen", "recorded") for kind in counts.get(table, ())}
    unknown = [kind for kind in kinds if f"`{kind}`" not in _page("report")]
    assert not unknown, f"not in report.md: {unknown}"


def _page(name: str) -> str:
    return (_SCHEMAS.parent / "spec" / f"{name}.md").read_text()


@cache
def header_keys() -> set[str]:
    """The keys in the first table of dump.md: those of the file."""
    table = _page("dump").split("\n\n|", 1)[1].split("\n\n", 1)[0]
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}
