"""Say which dumped steps stay: the key `keep`."""

from collections.abc import Mapping

from attrs import frozen
from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from .value_checks import Checked, positive

_EXAMPLE = "Write {last: 5}."


@frozen
class Keep:
    """Which steps stay. last: how many, the newest ones."""

    last: int


def kept_steps(value: object, where: str) -> Checked:
    """Check for ``{last: K}``."""
    if isinstance(value, Keep):
        return value, ()
    if not isinstance(value, Mapping):
        return None, (Problem(where, f"{brief(value)} does not say which steps stay.", _EXAMPLE),)
    problems = [
        Problem(where, f"{brief(name)} is not known.", did_you_mean(str(name), ["last"]) or _EXAMPLE)
        for name in value
        if name != "last"
    ]
    if "last" not in value:
        return None, (*problems, Problem(where, "last is missing.", _EXAMPLE))
    last, wrong = positive(value["last"], f"{where}.last")
    return (None, (*problems, *wrong)) if problems or wrong else (Keep(last), ())
