"""Read the list of functions to record: a package's own apis.yaml, with the user's file applied over it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from probe_format.errors import ConfigError, Problem
from probe_format.suggest import nearest

from probe_runtime.yaml_text import MOST_BYTES, YamlError, parse, parse_own

from .lookup import go_down, is_function, resolve_owner

RISK_LEVELS = ("ALL", "FOCUS", "CORE")


@attrs.frozen
class Api:
    """A listed name. Equal to another of the same section and name.

    section: a key of `ApiFile.sections`, "torch".
    name: dotted name below the section's objects, "linalg.svd".
    source: the list that it is of.
    """

    section: str
    name: str
    source: ApiFile = attrs.field(eq=False, repr=False)

    @property
    def prefix(self) -> str:
        """Return the first part of the record's name: "Torch"."""
        return self.source.sections[self.section][0]

    @property
    def api(self) -> str:
        """Return the second part of the record's name; a dotted name is cut to its last part: "svd"."""
        return self.name if self.name.startswith(self.source.whole) else self.name.rpartition(".")[2]

    @property
    def composite(self) -> bool:
        """Return whether the calls inside it are recorded too, so that they count as msprobe counts them."""
        return self.source.is_composite(self)

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the dotted paths of the objects below which `name` is looked up."""
        return self.source.sections[self.section][1]


Apis = tuple[Api, ...]
"""The names to record, in a fixed order: an object listed twice is labelled by its first place."""


@attrs.frozen(eq=False)
class ApiFile:
    """A package's list of functions, and what its sections mean.

    file: its apis.yaml: sections with lists of names; `more` (may be missing) and `views` with more of each; and
        `risk_level`.
    sections: name of a section -> (prefix of the labels, dotted paths of the objects that carry the names).
    whole: beginnings of the names that records have uncut (see `Api.api`). msprobe does not record these functions:
        Torch.erf.0 must be the first torch.erf, whatever torch.special.erf does.
    is_composite: returns whether the calls inside a function are recorded too.
    example: a line of a user's file, for error messages.
    known: the file where the names can be read, for error messages: "probe_torch/apis.yaml".
    """

    file: Path
    sections: Mapping[str, tuple[str, tuple[str, ...]]]
    whole: tuple[str, ...]
    is_composite: Callable[[Api], bool]
    example: str
    known: str


def load(
    source: ApiFile, path: str | Path | None = None, *, views: bool = False, risk_level: str = "ALL"
) -> Apis:
    """Return the functions to record.

    source: the package's list.
    path: the user's own apis.yaml, with the same sections: "name" adds a name, "-name" takes it out.
    views: whether to take the second list too, of views, copies and factories.
    risk_level: ALL (everything), FOCUS (without what only moves values) or CORE (only what carries the arithmetic).
        Names that the user's file adds are kept at every level.

    Raises ConfigError with every problem of the user's file at once, and when `risk_level` is unknown.
    """
    if risk_level not in RISK_LEVELS:
        what = f"risk_level is {risk_level!r}"
        remedy = _remedy(str(risk_level).upper(), RISK_LEVELS, source)
        raise ConfigError([Problem("risk_level", what, remedy)])
    text = read(source.file)
    chosen = {section: _plain(text, section) for section in source.sections}
    if views:
        for section, names in text["views"].items():
            chosen[section] += names
    drops = frozenset(text["risk_level"]["focus_drops"])
    keeps = frozenset(text["risk_level"]["core_keeps"])

    def wanted(api: Api) -> bool:
        if risk_level == "FOCUS":
            return api.api not in drops
        return risk_level == "ALL" or api.api in keeps

    apis = [
        api
        for section, names in chosen.items()
        for name in names
        if wanted(api := Api(section, name, source))
    ]
    if path is not None:
        apis = _with_user_file(apis, Path(path), text, source)
    return tuple(dict.fromkeys(apis))


@functools.cache
def read(file: Path) -> dict[str, Any]:
    """Return a package's own list, which is read once."""
    loaded: dict[str, Any] = parse_own(file.read_bytes())
    return loaded


def _plain(text: Mapping[str, Any], section: str) -> list[str]:
    """Return the names of a section that are recorded by default."""
    return [*text.get(section, ()), *text.get("more", {}).get(section, ())]


def _with_user_file(apis: list[Api], path: Path, text: Mapping[str, Any], source: ApiFile) -> list[Api]:
    """Return `apis` with the additions and removals of the user's file. Raises ConfigError as `load` does."""
    problems: list[Problem] = []
    added: list[Api] = []
    removed: set[Api] = set()
    for section, names in _sections_in(path, f'write sections as "{source.example}"').items():
        where = f"{path}: {section}"
        if section not in source.sections:
            remedy = _remedy(str(section), source.sections, source)
            problems.append(Problem(where, "is not a section", remedy))
            continue
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            problems.append(Problem(where, "is not a list of names", "write it as [name, name, -name]"))
            continue
        listed = {*_plain(text, section), *text["views"].get(section, ())}
        for name in names:
            removes = name.startswith("-")
            api = Api(section, name.removeprefix("-"), source)
            if problem := _problem_with(api, listed, where, source, removes=removes):
                problems.append(problem)
            elif removes:
                removed.add(api)
            else:
                added.append(api)
    if problems:
        raise ConfigError(problems)
    return [api for api in apis if api not in removed] + added


def _sections_in(path: Path, how: str) -> Mapping[Any, Any]:
    """Return the sections in a user's file. Raises ConfigError where it has none. how: the remedy in the message."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise ConfigError([Problem(str(path), f"has over {MOST_BYTES:,} bytes", how)])
        loaded, _ = parse(raw.decode("utf-8-sig"))
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError([Problem(str(path), what, "give the path of a readable YAML file")]) from error
    except (YamlError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(str(path), f"is not YAML: {error}", how)]) from error
    except RecursionError:
        raise ConfigError([Problem(str(path), "is nested too deeply", how)]) from None
    if loaded is not None and not isinstance(loaded, Mapping):
        raise ConfigError([Problem(str(path), f"holds a {type(loaded).__name__}, not sections", how)])
    return loaded or {}


def _problem_with(
    api: Api, listed: set[str], where: str, source: ApiFile, *, removes: bool
) -> Problem | None:
    """Return the problem with a name of the user's file; None if it has none."""
    if removes:
        if api.name in listed:
            return None
        what = f'"-{api.name}" takes out a name that is not listed'
        return Problem(where, what, _remedy(api.name, listed, source))
    owners = [owner for path in api.owners if (owner := resolve_owner(path)) is not None]
    # Without the package (an NPU file read on a laptop) it is unknown whether the name exists; where it does not,
    # Patches.missing reports it.
    if not owners or api.name in listed or any(_is_callable(owner, api.name) for owner in owners):
        return None
    known = {name for owner in owners for name in dir(owner) if _is_callable(owner, name)} | listed
    what = f'"{api.name}" is not a function of {api.owners[0]}'
    return Problem(where, what, _remedy(api.name, known, source))


def _is_callable(owner: Any, name: str) -> bool:
    # A framework's __getattr__ may import modules, warn, or raise errors of any kind for an unknown name.
    try:
        return is_function(*go_down(owner, name))
    except Exception:
        return False


def _remedy(name: str, known: Iterable[str], source: ApiFile) -> str:
    close = nearest(name, known)
    if close:
        return "did you mean " + ", ".join(close) + "?"
    return f"see {source.known} for the known names"
