"""Follow the windows of a `scope`: the parts of a step between two named calls, both included."""

from collections.abc import Iterator

from attrs import define
from probe_format.names import with_direction


@define
class Window:
    """A part of a step, from the entry of one call to the exit of another, once per step.

    begin: the forward name of the first call.
    end: the forward name of the last call; None until the step ends.
    forward: whether forward records of the calls entered inside are wanted.
    backward: whether their backward records are.
    begin_at: the index of ``begin`` in the configuration's `scope`.
    end_at: the index of ``end`` there.
    state: ``before``, ``inside`` or ``after``.
    end_seen: whether ``end`` was entered.
    """

    begin: str
    end: str | None
    forward: bool
    backward: bool
    begin_at: int
    end_at: int
    state: str = "before"
    end_seen: bool = False

    def enter(self, name: str) -> bool:
        """Note that a call begins. Return whether it is inside."""
        if self.state == "before" and name == self.begin:
            self.state = "inside"
        self.end_seen |= name == self.end
        return self.state == "inside"

    def leave(self, name: str) -> None:
        if self.state == "inside" and name == self.end:
            self.state = "after"

    def missing(self) -> Iterator[tuple[str, int]]:
        """Yield (name for a message, index in `scope`) of each end that did not come, or came in the wrong order."""
        if self.state == "before":
            yield f"scope[{self.begin_at}]", self.begin_at
        if self.end is not None and self.state != "after":
            if not self.end_seen:
                yield f"scope[{self.end_at}]", self.end_at
            elif self.state == "inside":
                yield f"scope[{self.end_at}], which came before scope[{self.begin_at}]", self.end_at


def windows(scope: tuple[str, ...]) -> tuple[Window, ...]:
    """Return the windows of a scope of two names (or of no names), as `NameFilter` defines them.

    A backward pass runs through the calls in the opposite order, so a part of it is known while the forward pass
    runs: the part begins there where it ends in the backward pass.
    """
    if not scope:
        return ()
    first, last = (with_direction(name, "forward") for name in scope)
    first_is_forward, last_is_forward = first == scope[0], last == scope[1]
    if first_is_forward and last_is_forward:
        return (Window(first, last, True, True, 0, 1),)
    if first_is_forward:
        return (Window(first, None, True, False, 0, 0), Window(last, None, False, True, 1, 1))
    return (Window(last, first, False, True, 1, 0),)
