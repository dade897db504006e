"""Say which dumped steps stay: the key `keep`."""

from attrs import frozen

from .value_checks import Checked, mapping, positive


@frozen
class Keep:
    """Which steps stay. last: how many, the newest ones."""

    last: int


_check = mapping(
    Keep, {"last": positive}, "does not say which steps stay.", "Write {last: 5}.", required=["last"]
)


def kept_steps(value: object, where: str) -> Checked:
    """Check for ``{last: K}``."""
    return (value, ()) if isinstance(value, Keep) else _check(value, where)
