"""Parse the patterns that select kernels (full names, operator types and ``name-regex(...)``), refuse those that
MindSpore would misinterpret, and match them with operators' names.
"""

import re
import warnings
from typing import Any, Literal

from attrs import frozen
from probe_format.errors import Problem

_PREFIX = "name-regex("
# std::regex (ECMAScript) has lookahead and plain groups; the rest of Python's (?...) it refuses when compiling.
_NOT_ECMASCRIPT = re.compile(r"\(\?(?![:=!])|[*+?}]\+")
_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "xdigit": "0-9A-Fa-f",
    "space": r"\s", "punct": r"!-/:-@\[-`{-~", "blank": r" \t", "w": r"\w", "d": r"\d", "s": r"\s",
}  # fmt: skip


@frozen
class KernelPattern:
    """Represent one entry of ``kernels``.

    text: as given.
    kind: how MindSpore's dumper interprets it.
    """

    text: str
    kind: Literal["name", "type", "regex"]

    @property
    def regex(self) -> str:
        return self.text.removeprefix(_PREFIX).removesuffix(")")

    def matches(self, name: str) -> bool:
        """Return whether the pattern selects the operator ``name`` (``Default/conv1-Conv2d/Conv2D-op0``).

        A name must be equal, and a regular expression must match the whole name. A type must occur in the last part of
        the name; its case does not matter.
        """
        if self.kind == "name":
            return name == self.text
        if self.kind == "regex":
            return re.fullmatch(_as_python(self.regex), name) is not None
        last = name.rpartition("/")[2]
        return self.text.lower() in (last.rpartition("-")[0] or last).lower()


def parse_kernel(value: Any, where: str) -> KernelPattern | Problem:
    """Parse one entry of ``kernels``; return it, or its problem. where: names the entry in the problem."""
    if not isinstance(value, str):
        what = f"{value!r} is a {type(value).__name__}, not a name."
        return Problem(where, what, 'Write e.g. "Conv2D" or "name-regex(Default/.+)".')
    if not value.strip():
        return Problem(where, "is empty.", "Remove it; an empty list takes every kernel.")
    # The dumper uses the same test: a name has a scope or an operator number.
    plain: Literal["name", "type"] = "name" if "/" in value or "-op" in value else "type"
    pattern = KernelPattern(value, "regex" if value.startswith(_PREFIX) else plain)
    wrong = _odd(value) or (_wrong_regex(pattern.regex) if pattern.kind == "regex" else None)
    return Problem(where, f"{value!r} {wrong[0]}", wrong[1]) if wrong else pattern


def _odd(value: str) -> tuple[str, str] | None:
    """Return what is wrong with a value that the dumper would silently misinterpret, and the remedy."""
    if any(c.isspace() for c in value):
        return "has a blank, which MindSpore removes.", f'Write "{"".join(value.split())}".'
    if '"' in value:
        what = "has a quotation mark, which MindSpore removes."
        return what, "Remove it, or write a dot for it in a regex."
    if value.startswith(_PREFIX) and value.endswith(")"):
        return None
    if value.startswith(_PREFIX):
        return "has no closing bracket, so MindSpore takes it for a plain name.", f'Write "{value})".'
    low = value.lower().replace("_", "-")
    if low.startswith(("name-regex", "nameregex", "regex(")):
        inside = value.partition("(")[2].rstrip(")") or "Default/.+"
        what = "is not a regular expression to MindSpore: the form is name-regex(...)."
        return what, f'Write "{_PREFIX}{inside})".'
    if re.search(r"[*^$\[\](){}|?+]", value):
        guess = value if re.search(r"\.[*+]|[\[(|^$]", value) else value.replace("*", ".*")
        return "looks like a pattern, and would be taken for a plain name.", f'Write "{_PREFIX}{guess})".'
    if "\\" in value:
        return "has a backslash; no operator's name has one.", f'Write "{value.replace(chr(92), "/")}".'
    return None


def _wrong_regex(regex: str) -> tuple[str, str] | None:
    if not regex:
        return "is an empty expression, which matches nothing.", 'Write e.g. "name-regex(.+)".'
    if "\\" in regex:
        # Measured: the dumper does not decode the JSON text, so each backslash arrives doubled and matches itself.
        plain = regex.replace("\\d", "[0-9]").replace("\\w", "[0-9A-Za-z_]").replace("\\S", "[^ ]")
        plain = re.sub(r"\\([^0-9A-Za-z])", r"[\1]", plain)
        what = "has a backslash, which MindSpore's dumper doubles, so it never matches."
        if "\\" in plain:
            return what, "Write [0-9] for a digit, [.] for a dot."
        return what, f'Write "{_PREFIX}{plain})".'
    if found := _NOT_ECMASCRIPT.search(regex):
        what = f"has {found[0]!r}, which C++ (ECMAScript) expressions do not know."
        return what, "Use plain groups, (?:...), (?=...) or (?!...)."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(_as_python(regex))
    except (re.error, FutureWarning, OverflowError) as e:
        return f"is not a regular expression: {e}.", "Correct it."
    except RecursionError:
        return "is nested too deeply.", "Write a simpler one."
    return None


def _as_python(regex: str) -> str:
    return re.sub(r"\[:(\w+):\]", lambda m: _POSIX.get(m[1], m[0]), regex)
