"""What Probe says to its user: one message, with certain words, or nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from probe_format.errors import UsageError

__all__ = ["silent", "told"]


@contextmanager
def told(*words: str) -> Iterator[None]:
    """The block must end in one UsageError, or one warning, that has all the words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except UsageError as error:
            said = [str(error)]
        else:
            said = [str(w.message) for w in caught]
    fitting = [text for text in said if all(word in text.lower() for word in words)]
    assert len(fitting) == 1, f"said {said}, which should be one message with {words}"


@contextmanager
def silent() -> Iterator[None]:
    """Within the block Probe must warn of nothing. A filter that makes errors of warnings shows no more than others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    said = [text for each in caught if "Probe" in (text := str(each.message))]
    assert not said, said
