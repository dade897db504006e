"""Say which dumped steps stay: the key `keep`."""

from attrs import frozen

from .value_checks import mapping, positive


@frozen
class Keep:
    """Which steps stay. last: how many, the newest ones."""

    last: int


kept_steps = mapping(
    Keep, {"last": positive}, "does not say which steps stay.", "Write {last: 5}.", required=["last"]
)
"""Checks for ``{last: K}``."""
