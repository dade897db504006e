"""Select the calls of a model that are collected while it generates tokens, and say which of them did not come.

The user gives the first and the last of these calls to `start` of the debugger, as its argument `token_range`.
"""

from attrs import define


@define
class TokenGate:
    """Count the calls of a model.

    first: the first call that is collected, from 0.
    last: the last one.
    number: the last call that began; -1 before the first.
    """

    first: int
    last: int
    number: int = -1

    def begins(self) -> bool:
        """Count a call that begins. Return whether it is collected."""
        self.number += 1
        return self.first <= self.number <= self.last

    @property
    def shortfall(self) -> tuple[str, str] | None:
        """Return what was asked for and did not come, and why; None where all came."""
        if self.over:
            return None
        begins = max(self.first, self.number + 1)
        return f"calls {begins} to {self.last} of the model", (
            f"token_range asks for calls {self.first} to {self.last} of the model, which was called "
            f"{self.number + 1} times"
        )

    @property
    def over(self) -> bool:
        """Return whether no later call is collected."""
        return self.number >= self.last
