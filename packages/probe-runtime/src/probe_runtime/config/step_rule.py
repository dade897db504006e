"""Hold and check the rule by which a step ends (key `step_ends`); check the first step's number (`first_step`)."""

from collections.abc import Sequence
from typing import Any, Self

from attrs import frozen
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from .number_ranges import is_whole
from .value_checks import Checked, refused

#: Each kind of rule -> what is wrong where it has too much or too little after it.
KINDS = {
    "update": "update takes nothing after it",
    "all": "all takes nothing after it",
    "last": "last wants an optimizer's class or number",
    "calls": "calls wants a function",
}
EXAMPLES = '"update", "all", "last:AdamW", "last:1" or "calls:package.module:function"'


@frozen
class StepRule:
    """When a step ends.

    kind: "update": with each update of an optimizer; "all": when every optimizer has stepped; "last": when a certain
        one has; "calls": with each call of a function.
    which: that optimizer, by its class or its number, or the function as ``package.module:function``.
    """

    kind: str
    which: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the rule that a checked text stands for."""
        kind, _, which = text.partition(":")
        return cls(kind, which)

    def ends(self, live: Sequence[Any], stepped: set[int]) -> bool:
        """Return whether the step is over now that the optimizers with these ids have stepped.

        live: all optimizers, in the order in which they were made.
        """
        if self.kind == "last":
            named = [one for one in live if type(one).__name__ == self.which]
            chosen = live[int(self.which) :][:1] if self.which.isdigit() else named
            return any(id(one) in stepped for one in chosen)
        return all(id(one) in stepped for one in live)

    @property
    def is_lazy(self) -> bool:
        """Return whether a step also ends where the next forward begins after any update."""
        return self.kind == "update"

    def __str__(self) -> str:
        return f"{self.kind}:{self.which}" if self.which else self.kind


def step_rule(value: object, where: str) -> Checked:
    """Check for the text of a rule."""
    problem = None
    kind, colon, which = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not isinstance(value, str):
        problem = f"{brief(value)} is no text."
    elif kind not in KINDS:
        problem = f"{value!r} is not known. {did_you_mean(kind, KINDS)}".strip()
    elif (kind in ("last", "calls")) != bool(which) or (colon and not which):
        problem = f"{value!r}: {KINDS[kind]}."
    elif kind == "calls" and not all(which.partition(":")[::2]):
        problem = f"{value!r} names no function."
    return (value, ()) if problem is None else refused(where, problem, f"Write {EXAMPLES}.")


def first_number(value: object, where: str) -> Checked:
    """Check for the number of a step, or "auto"."""
    if value == "auto" or is_whole(value):
        return value, ()
    return refused(where, f"{brief(value)} is no number of a step.", 'Write a number from 0 up, or "auto".')
