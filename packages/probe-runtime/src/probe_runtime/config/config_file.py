"""Read a configuration file, JSON or YAML, into a mapping that knows the line of each key."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from probe_runtime.yaml_text import MOST_BYTES, MOST_LEVELS, YamlError, compose, parse

_SUFFIXES = (".json", ".yaml", ".yml")


class ConfigFile(dict[str, Any]):
    """The mapping in a file. ``place("statistics.list")`` returns ``"config.json:9 statistics.list"``.

    path: the file.
    lines: path of a key -> its line, from 1.
    """

    def __init__(self, content: dict[str, Any], path: Path, lines: dict[str, int]) -> None:
        super().__init__(content)
        self.path = path
        self.lines = lines

    def place(self, key: str) -> str:
        """Return the file, the line and the key. key: the path of a key; an index, as in ``step[1]``, is allowed."""
        line = self.lines.get(key) or self.lines.get(key.partition("[")[0])
        return f"{self.path}:{line} {key}" if line else f"{self.path} {key}"


def load(path: str | os.PathLike[str]) -> ConfigFile:
    """Read a configuration from ``*.json``, ``*.yaml`` or ``*.yml``.

    Raises ConfigError when ``path`` is not a path or not a readable file, and when the content is not JSON or YAML
    (with the line), has a key twice, or is not a mapping.
    """
    path = _path(path)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise _error(path, f"{path.suffix or 'no suffix'} is not a kind of configuration file.",
                     "Name it *.json, *.yaml or *.yml.")  # fmt: skip
    text = _text(path)
    root: yaml.Node | None = None
    try:
        if suffix == ".json":
            content = _parse_json(path, text)
        else:
            content, root = parse(text)
    except YamlError as e:
        raise _error(f"{path}:{e.line}" if e.line else path, f"not usable YAML: {e.what}.") from None
    except RecursionError:
        raise _error(path, "is nested too deeply.", "A configuration has two levels.") from None
    if content is None and suffix != ".json":
        content = {}
    if not isinstance(content, dict):
        what = f"holds a {type(content).__name__}, not keys and values."
        raise _error(path, what, 'Write e.g. {"task": "statistics"}.')
    if suffix == ".json":  # JSON without tabs is YAML, so one parser finds the lines of both
        root = compose(text.replace("\t", " "))
    return ConfigFile(content, path, dict(_walk(root, "", 2)))


def _text(path: Path) -> str:
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would keep the run waiting
        raise _error(path, "is neither a file nor a folder.", "Give the path of a file.")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise _error(path, "there is no such file.", _neighbours(path)) from None
    except OSError as e:
        raise _error(path, f"cannot be read: {e.strerror or e}.", "Give the path of a readable file.") from e
    if len(raw) > MOST_BYTES:
        raise _error(path, f"has over {MOST_BYTES:,} bytes.", "Give the path of a configuration.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise _error(path, f"is not UTF-8 text (byte {e.start}).", "Save it as UTF-8.") from e


def _path(given: object) -> Path:
    """Return what was given as a path. Raises ConfigError when it cannot be the path of a file."""
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str):
        raise _error("config_path", f"must be the path of a file, not a {type(given).__name__}.",
                     'Settings are keywords, as level="L1"; a model goes to start(model).')  # fmt: skip
    if not text.strip() or "\0" in text:
        raise _error(
            "config_path", f"{text!r} is not a path.", 'Write e.g. "./config.json", or leave it out.'
        )
    path = Path(text)
    if path.is_dir():
        inside = [p.name for p in sorted(path.iterdir()) if p.suffix.lower() in _SUFFIXES][:3]
        there = f"; there is {', '.join(inside)} in it" if inside else ""
        raise _error(path, f"is a directory{there}.",
                     "Give the path of a file. Where the dump goes is dump_path=...")  # fmt: skip
    return path


def _error(place: object, what: str, remedy: str = "") -> ConfigError:
    return ConfigError([Problem(str(place), what, remedy)])


def _neighbours(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix.lower() in _SUFFIXES]
    except OSError:
        return f"There is no readable directory {path.parent.absolute()} either."
    return did_you_mean(path.name, names) or f"Looked in {path.parent.absolute()}."


def _parse_json(path: Path, text: str) -> Any:
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            twice.extend(k for k, n in Counter(k for k, _ in items).items() if n > 1)
        return found

    try:
        content = json.loads(text, object_pairs_hook=pairs)
        _check_depth(path, content)
    except json.JSONDecodeError as e:
        raise _error(f"{path}:{e.lineno}", f"not JSON: {e.msg} (line {e.lineno}, column {e.colno}).",
                     "JSON has no comments and no comma after the last item; a .yaml file may have both."
                     ) from None  # fmt: skip
    except ValueError as e:  # an int of more than 4300 digits
        raise _error(path, f"not usable JSON: {e}.") from None
    if twice:
        raise ConfigError(
            Problem(str(path), f"the key {brief(k)} is there twice.", "Keep one.") for k in twice
        )
    return content


def _check_depth(path: Path, content: Any) -> None:
    level = [content]
    for _ in range(MOST_LEVELS):
        level = [
            item
            for part in level
            if isinstance(part, list | dict)
            for item in (part.values() if isinstance(part, dict) else part)
        ]
    if level:
        raise _error(path, "is nested too deeply.", "A configuration has two levels.")


def _walk(node: yaml.Node | None, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode) and depth:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = f"{prefix}{key.value}"
                yield name, key.start_mark.line + 1
                yield from _walk(value, f"{name}.", depth - 1)
