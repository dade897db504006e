"""Read the JSON of a control file, also where it has trailing commas as in MindSpore's documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from probe_format.errors import ConfigError, Problem

_MOST_BYTES = 1 << 20


def read_json(path: Path, notes: list[str], refused: list[str]) -> Any:
    """Return the document of a control file. Accepts text that MindSpore's documents show but MindSpore refuses.

    notes: gets a sentence for each place where only the last of several values counts.
    refused: gets one for each place that MindSpore refuses.
    Raises ConfigError when the file is not JSON, OSError when it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise _refusal(path, "is no file with an end")  # a pipe would keep everybody waiting
    with path.open("rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise _refusal(path, f"has over {_MOST_BYTES} bytes, which no control file has")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, f"is not text in UTF-8 ({error.reason} at byte {error.start})") from None
    plain, commas = _without_trailing_commas(text)
    try:
        document = _loads(plain, notes)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"is not JSON: {error}") from None
    what = "a comma before a closing bracket; MindSpore refuses the file until it is gone."
    refused += (f"line {line}: {what}" for line in commas)
    return document


def _loads(text: str, notes: list[str]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice = next(key for i, (key, _) in enumerate(items) if key in dict(items[:i]))
            notes.append(f"{twice}: is there twice; the last one counts.")
        return found

    def constant(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


def _without_trailing_commas(text: str) -> tuple[str, list[int]]:
    """Return the text without trailing commas, and the lines that had them."""
    lines: list[int] = []

    def drop(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        lines.append(text.count("\n", 0, match.start()) + 1)
        return match[1]

    return re.sub(r'"(?:[^"\\]|\\.)*"|,(\s*[}\]])', drop, text), lines


def _refusal(path: Path, what: str) -> ConfigError:
    remedy = 'Write a JSON file like {"common_dump_settings": {...}}.'
    return ConfigError([Problem(str(path), f"{what}.", remedy)])
