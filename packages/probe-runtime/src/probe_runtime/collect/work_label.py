"""Label the calls of a thread or asyncio task, such as by request, so that requests in flight can be told apart."""

from contextvars import ContextVar

from probe_format.errors import UsageError
from probe_format.excerpts import brief
from probe_format.jsonio import inert

_current: ContextVar[str | None] = ContextVar("probe_label", default=None)

current_label = _current.get
"""Return the label of this thread, or of this task of asyncio; None where it has none."""


class WorkLabel:
    """Give the calls of this thread, or of this task of asyncio, a label from here on; other ones keep theirs.

    As a context manager it puts back, at the end of the block, the label that was there before.
    """

    def __init__(self, text: str | None) -> None:
        """Set the label. text: None for none. Raises UsageError for what is not a text with at least one character."""
        if text is not None and (not isinstance(text, str) or not text):
            raise UsageError(
                f"label wants a text, as label('req-42'), or None to end one; got {brief(text)}."
            )
        self._before = current_label()
        _current.set(None if text is None else inert(str.__str__(text)))

    def __enter__(self) -> None:
        """Do nothing: the label is there."""

    def __exit__(self, *error: object) -> None:
        _current.set(self._before)
