"""Hold and check the configuration's key `keep`: how many of the steps that were dumped last stay on the disk."""

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
