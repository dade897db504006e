"""Ask what the user's own methods answer, which may raise anything, and which the run would not have asked."""

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class NotAnException(Exception):
    """Raised in place of what a method of the user's raised that is no Exception: it would end the run."""


def asked(question: Callable[[Any], _T], value: Any) -> _T:
    """Return what a question about a value is answered. Raises Exceptions, and what was not caused by the question.

    That is an interrupt, and what a signal's handler raises meanwhile.
    """
    try:
        return question(value)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as e:
        if _is_signal(e):
            raise
        raise NotAnException(f"{type(e).__name__}, which is no Exception") from e


def _is_signal(error: BaseException) -> bool:
    """Return whether a signal's handler raised an error: it alone is given the frame that is below its own."""
    trace = error.__traceback__
    while trace is not None:
        below, own = trace.tb_frame.f_back, trace.tb_frame.f_locals
        given = [each for one in own.values() for each in (one if type(one) is tuple else (one,))]
        if below is not None and any(each is below for each in given):
            return True
        trace = trace.tb_next
    return False
