"""Parse the conditions of the key `when`, such as ``spike(loss) > 5``, by which the steps of a run are judged.

`when` is a key of the configuration: the steps around one that meets any of its conditions are kept.
No text is run as code.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from attrs import frozen
from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from .value_checks import Checked

Kind = Literal["non_finite", "norm", "spike", "signal", "file", "function"]
#: The parts of a step that `non_finite` may name, and the gradients that `norm` may.
PARTS = ("forward", "backward", "gradients")
MOMENTS = ("parameters_grad", "optimizer_grad")
SIGNALS = ("SIGUSR1", "SIGUSR2")
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_EXAMPLE = (
    'Write "non_finite", "norm(parameters_grad) > 1e3", "spike(loss) > 5", "SIGUSR1", "file: PATH" or '
    '"package.module:function".'
)
_CALL = re.compile(r"(\w+)\s*(?:\(\s*([^()]*?)\s*\))?\s*(?:(>=|<=|>|<)\s*(\S+))?")
_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_KNOWN = ("non_finite", "norm", "spike", "file", *SIGNALS)


@frozen
class Condition:
    """One condition.

    kind: what it looks at.
    text: as it was configured; of a function its name.
    subject: the part of the step (`non_finite`; empty for all), the gradients (`norm`), the name of the value
        (`spike`), the signal, the path, or the function as ``package.module:function``.
    sign, limit: the comparison of `norm` and `spike`.
    function: the function, where it was given itself.
    """

    kind: Kind
    text: str
    subject: str = ""
    sign: str = ""
    limit: float = 0.0
    function: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return self.text

    def holds(self, value: float) -> bool:
        """Return whether the comparison is true of a number; never of NaN."""
        return _SIGNS[self.sign](value, self.limit)


def conditions(value: object, where: str) -> Checked:
    """Check for a list of conditions; one alone counts as a list of one. Kept as a tuple."""
    items = [*value] if isinstance(value, (list, tuple)) else [value]
    found, problems = [], []
    for i, item in enumerate(items):
        made = item if isinstance(item, Condition) else _condition(item)
        if isinstance(made, Condition):
            found.append(made)
        else:
            at = f"{where}[{i}]" if isinstance(value, (list, tuple)) else where
            problems.append(Problem(at, made, _EXAMPLE))
    return tuple(found), tuple(problems)


def _condition(item: object) -> Condition | str:
    """Return the condition, or what is wrong with it."""
    if isinstance(item, Mapping) and list(item) == ["file"]:  # YAML makes it of `- file: PATH`
        item = f"file: {item['file']}"
    if callable(item):
        name = f"{getattr(item, '__module__', '')}:{getattr(item, '__qualname__', type(item).__name__)}"
        return Condition("function", name, name, function=item)
    return _written(item.strip()) if isinstance(item, str) else f"{brief(item)} is no condition."


def _written(text: str) -> Condition | str:
    """Return the condition that a text stands for, or what is wrong with it."""
    if text.startswith("file:"):
        path = text.removeprefix("file:").strip()
        return Condition("file", text, path) if path and "\0" not in path else f"{text!r} names no file."
    if _FUNCTION.fullmatch(text):
        return Condition("function", text, text)
    parsed = _CALL.fullmatch(text)
    if parsed is None:
        return f"{brief(text)} is not understood."
    word, subject, sign, limit = parsed.groups()
    if word in SIGNALS and subject is None and sign is None:
        return Condition("signal", text, word)
    if word == "non_finite" and sign is None:
        if subject in (None, *PARTS):
            return Condition("non_finite", text, subject or "")
        return f"{text!r}: it takes {', '.join(PARTS)}. {did_you_mean(subject, PARTS)}".strip()
    if word in ("norm", "spike"):
        return _compared(word, text, subject, sign, limit)
    return f"{text!r} is not known. {did_you_mean(word, _KNOWN)}".strip()


def _compared(
    word: str, text: str, subject: str | None, sign: str | None, limit: str | None
) -> Condition | str:
    if not subject or sign is None or limit is None:
        return f"{text!r} compares nothing."
    try:
        number = float(limit)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return f"{text!r}: {limit!r} is no number."
    if word == "norm":
        if subject not in MOMENTS:
            return f"{text!r}: it takes {' or '.join(MOMENTS)}. {did_you_mean(subject, MOMENTS)}".strip()
        return Condition("norm", text, subject, sign, number)
    if sign not in (">", ">=") or number <= 0:
        return f"{text!r}: a spike is above a number of times the median."
    return Condition("spike", text, subject, sign, number)
