"""Hand the user an error of the run, met when Probe looked at a tensor, past the guards against Probe's faults."""

from probe_format.excerpts import PassesThrough


class RunError(PassesThrough):
    """An error of the run, on its way to the user: no guard against faults of Probe may stop it, so it is no Exception.

    What the framework calls of Probe's raises `error` in its place: ``raise e.error from e``.

    error: what the framework raised.
    """

    def __init__(
        self,
        error: Exception,
        why: str = "The run computes behind Python; its error came when Probe looked at a tensor.",
    ) -> None:
        """Wrap the error. why: it comes from Probe, for the reader of a traceback."""
        super().__init__(why)
        self.error = error


def is_handed_on(error: BaseException) -> bool:
    """Return whether this is an error of the run that Probe hands on, and no fault of Probe."""
    return isinstance(error.__cause__, RunError)
