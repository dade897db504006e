"""Which calls of a model that generates tokens are collected: `token_range`."""

from __future__ import annotations

from attrs import define

__all__ = ["TokenGate"]


@define
class TokenGate:
    """Which calls of the model are collected when it generates tokens: numbers first to last, from 0."""

    first: int
    last: int
    number: int = -1

    def begins(self) -> bool:
        """The model is called again: whether this call is collected."""
        self.number += 1
        return self.first <= self.number <= self.last

    @property
    def over(self) -> bool:
        """Whether no later call is collected."""
        return self.number >= self.last
