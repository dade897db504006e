"""Number the texts of a page, so that each is in it once."""

from __future__ import annotations

from attrs import define, field

__all__ = ["Texts"]


@define(eq=False)
class Texts:
    """Give each text a number, from 0 for the empty one. all: the texts in the order of their numbers."""

    all: list[str] = field(factory=lambda: [""])
    _numbers: dict[str, int] = field(factory=lambda: {"": 0}, repr=False)

    def of(self, text: str) -> int:
        """Return the number of a text; a new one gets the next."""
        number = self._numbers.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number
