"""Go on without the ranks that cannot be read, and keep why."""

from collections.abc import Iterator
from contextlib import contextmanager

from probe_format.errors import FormatError


class Skipped(dict[str, str]):
    """Map the label of each rank that is left out to why.

    first: the first error.
    """

    first: FormatError | None = None

    @contextmanager
    def trying(self, label: str) -> Iterator[None]:
        """Leave a rank out when reading it raises an error."""
        try:
            yield
        except FormatError as error:
            self.first = self.first or error
            self[label] = str(error)

    def unless(self, read: object) -> None:
        """Raise the first error where nothing was read."""
        if not read and self.first is not None:
            raise self.first
