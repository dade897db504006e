"""Check single configuration values: each check returns the value as Probe keeps it, and its problems."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

Checked = tuple[Any, tuple[Problem, ...]]
"""The value and its problems. With a problem the value has no meaning."""
Check = Callable[[object, str], Checked]
"""Takes the value as given, and where it was given."""


def refused(where: str, what: str, remedy: str) -> Checked:
    """Return what a check returns for a value with one problem."""
    return None, (Problem(where, what, remedy),)


def _is(value: object) -> str:
    """Return ``'x' is a str`` or ``3 is an int``, shortened, for a message."""
    kind = type(value).__name__
    return f"{brief(value)} is {'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _listed(options: Sequence[str]) -> str:
    quoted = [f'"{o}"' for o in options]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def flag(value: object, where: str) -> Checked:
    """Check for true or false; 1, "true" and the like are refused."""
    if isinstance(value, bool):
        return value, ()
    return refused(where, f"{_is(value)}, not a bool.", "Write true or false, without quotes.")


def choice(*options: str, known: dict[str, str] | None = None) -> Check:
    """Return a check for one of ``options``. known: values that only other tools take -> what to do instead."""

    def check(value: object, where: str) -> Checked:
        if not isinstance(value, str):
            return refused(where, f"{_is(value)}.", f"Write {_listed(options)}.")
        if value in options:
            return value, ()
        if known and value in known:
            return refused(where, f"{value!r} is not done by Probe.", known[value])
        remedy = f"{did_you_mean(value, options)} Write {_listed(options)}.".strip()
        return refused(where, f"{value!r} is not known.", remedy)

    return check


def one_or_names(*options: str) -> Check:
    """Return a check for one of ``options``, or for a list of names, which is kept as a tuple."""
    single = choice(*options)

    def check(value: object, where: str) -> Checked:
        if not isinstance(value, list | tuple):
            return single(value, where)
        if len(value) == 1 and value[0] in options:
            return value[0], ()
        return names(value, where)

    return check


def choices(*options: str, alone: str) -> Check:
    """Return a check for any of ``options`` together, or ``alone`` by itself. Kept as a frozenset.

    An empty list means ``alone``.
    """

    def check(value: object, where: str) -> Checked:
        items, problems = _strings(value, where, f'["{alone}"]')
        single = choice(alone, *options)
        for i, item in items:
            problems.extend(single(item, f"{where}[{i}]")[1])
        kept = frozenset(item for _, item in items)
        if not problems and alone in kept and len(kept) > 1:
            rest = sorted(kept - {alone})
            return refused(where, f"{alone!r} takes everything, so {rest} beside it says nothing.",
                        f'Write ["{alone}"] or {rest}.'.replace("'", '"'))  # fmt: skip
        return kept or frozenset({alone}), tuple(problems)

    return check


def names(value: object, where: str) -> Checked:
    """Check for names or parts of names; one alone counts as a list of one. Kept as a tuple, in order."""
    items, problems = _strings(value, where, '["relu"]')
    for i, item in items:
        if not item.strip():
            problems.append(Problem(f"{where}[{i}]", "is empty, and would match every name.", "Remove it."))
    return tuple(item for _, item in items), tuple(problems)


def _strings(value: object, where: str, example: str) -> tuple[list[tuple[int, str]], list[Problem]]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple | set | frozenset):
        return [], [Problem(where, f"{_is(value)}, not a list of strings.", f"Write e.g. {example}.")]
    good, problems = [], []
    for i, item in enumerate(value):
        if isinstance(item, str):
            good.append((i, item))
        else:
            problems.append(Problem(f"{where}[{i}]", f"{_is(item)}, not a string.", f"Write e.g. {example}."))
    return good, problems


def positive(value: object, where: str) -> Checked:
    """Check for a whole number from 1 up; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        return refused(
            where, f"{_is(value)}, not a whole number.", "Write digits alone, without a unit, e.g. 100."
        )
    return (value, ()) if value > 0 else refused(where, f"{value} is not above 0.", "Write 1 or more.")


def mapping(
    make: type,
    keys: Mapping[str, Check],
    what: str,
    example: str,
    required: Sequence[str] = (),
) -> Check:
    """Return a check for a mapping of ``keys``, which is kept as an object of the class ``make``.

    what: what the message says of a value that is no mapping.
    required: keys that must be there.
    """

    def check(value: object, where: str) -> Checked:
        if isinstance(value, make):
            return value, ()
        if not isinstance(value, Mapping):
            return refused(where, f"{brief(value)} {what}", example)
        found: dict[str, Any] = {}
        problems: list[Problem] = []
        for name, given in value.items():
            if name not in keys:
                hint = did_you_mean(str(name), list(keys)) or example
                problems.append(Problem(where, f"{brief(name)} is not known.", hint))
            elif given is not None or name in required:
                found[name], wrong = keys[name](given, f"{where}.{name}")
                problems += wrong
        problems += [Problem(where, f"{name} is missing.", example) for name in required if name not in value]
        return (None, tuple(problems)) if problems else (make(**found), ())

    return check


def _path(value: object, where: str, example: str) -> Checked:
    if not isinstance(value, str | os.PathLike):
        return refused(where, f"{_is(value)}, not a path.", f'Write e.g. "{example}".')
    text = os.fspath(value)
    if not isinstance(text, str):
        return refused(where, f"{text!r} is bytes, not text.", f'Write e.g. "{example}".')
    if not text.strip():
        return refused(where, "is empty.", f'Write e.g. "{example}", or leave the key out.')
    if "\0" in text:
        return refused(where, f"{text!r} holds a NUL character.", "No file system takes that; remove it.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return refused(where, f"{text!a} is not text that a file system takes.", "Write it without escapes.")
    try:
        return Path(text).expanduser().absolute(), ()
    except RuntimeError as e:  # "~name" of a user that does not exist
        return refused(where, f"{text!r}: {e}", "Write the path in full.")


def output_path(value: object, where: str) -> Checked:
    """Check for a directory to write to, which need not exist. Kept absolute."""
    path, problems = _path(value, where, "./dump_path")
    if path is not None and os.path.exists(path) and not os.path.isdir(path):
        return refused(where, f"{path} is a file, not a directory.", "Give another path.")
    return path, problems


def tables_address(value: object, where: str) -> Checked:
    """Check for ``parquet``, a folder, or an address with ``://``. Kept as text."""
    if isinstance(value, str) and (value == "parquet" or "://" in value) and "\0" not in value:
        return value, ()
    # The name of another form, or a slip.
    if isinstance(value, str) and value.strip() and os.sep not in value:
        return refused(where, f"{value!r} is no address.", "Write parquet, ./tables or e.g. s3://bucket/run.")
    path, problems = output_path(value, where)
    return (None if problems else os.fspath(path)), problems


def source_file(value: object, where: str) -> Checked:
    """Check for an existing file. Kept absolute."""
    path, problems = _path(value, where, "./apis.yaml")
    if path is not None and not path.is_file():
        return refused(where, f"there is no file {path}.", "Give the path of an existing file.")
    return path, problems
