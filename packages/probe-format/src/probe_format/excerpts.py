"""Shorten values and errors for messages, which stay readable whatever these hold, or their methods raise."""

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
_MOST = 100


def brief(value: Any, most: int = _MOST) -> str:
    """Return ``repr(value)`` or its beginning; of nested values only the outer levels. Never raises.

    most: the approximate number of characters.
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}..."
    try:
        return cut(asked(_repr.repr, value), most)
    except Exception:  # an integer of more digits than Python writes, an object whose repr raises
        return f"<{type(value).__name__}>"


def error_text(error: BaseException) -> str:
    """Return ``ValueError: its message``, also where making the message raises."""
    try:
        said = asked(str, error)
    except Exception:
        said = "(its text cannot be had)"
    return f"{type(error).__name__}: {said}"


def text(value: Any) -> str:
    """Return a string as it is, and `brief` of anything else."""
    return value if isinstance(value, str) else brief(value)


def cut(sentence: str, most: int) -> str:
    """Return the sentence, or its first ``most - 3`` characters and an ellipsis."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 3]}..."


class PassesThrough(BaseException):
    """An error on its way to the run, which whatever guards against what is asked of the user's methods lets pass."""


class NotAnException(Exception):
    """Raised in place of what a method of the user's raised that is no Exception: it would end the run."""


def asked(question: Callable[[Any], _T], value: Any) -> _T:
    """Return what a question about a value is answered. Raises Exceptions, and what was not caused by the question.

    That is an interrupt, and what a signal's handler raises meanwhile.
    """
    try:
        return question(value)
    except (Exception, KeyboardInterrupt, PassesThrough):
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


_repr = reprlib.Repr()
_repr.maxlevel = 4
_repr.maxstring = _repr.maxother = _repr.maxlong = _MOST
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 12
