"""Shorten values and errors for messages, and ask the user's objects for their text without harm to the run.

Whatever a value's own methods raise, the message stays readable. An error that a signal's handler, a trace function or
a profile function raises meanwhile is the run's, and is passed on.
"""

import functools
import inspect
import itertools
import reprlib
import signal
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, TypeVar

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Exception)
_MOST = 100


def brief(value: Any, most: int = _MOST) -> str:
    """Return ``repr(value)`` or its beginning; of nested values only the outer levels. Never raises.

    most: the approximate number of characters.
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}..."
    try:
        return cut(asked(_repr.repr, value), most)
    # An integer of more digits than Python writes, an object whose repr raises.
    except unsignalled(Exception):
        return f"<{type(value).__name__}>"


def error_text(error: BaseException) -> str:
    """Return ``ValueError: its message``, also where making the message raises."""
    try:
        said = asked(str, error)
    except unsignalled(Exception):
        said = "(its text cannot be had)"
    return f"{type(error).__name__}: {said}"


def text(value: Any) -> str:
    """Return a string as it is, and `brief` of anything else."""
    return value if isinstance(value, str) else brief(value)


def cut(sentence: str, most: int) -> str:
    """Return the sentence, or its first ``most - 3`` characters and an ellipsis."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 3]}..."


class PassesThrough(BaseException):
    """An error on its way to the run, which every guard around the user's methods lets pass."""


class NotAnException(Exception):
    """Raised in place of what a method of the user's raised that is no Exception: it would end the run."""


def asked(question: Callable[[Any], _T], value: Any) -> _T:
    """Return the answer to a question about a value, which may run the user's methods.

    Raises what the question raises, as NotAnException where it is no Exception. An interrupt, `PassesThrough` and
    what `from_signal` tells do not come from the question: they are raised as they are.
    """
    try:
        return question(value)
    except (Exception, KeyboardInterrupt, PassesThrough):
        raise
    except BaseException as e:
        if from_signal(e):
            raise
        raise NotAnException(f"{type(e).__name__}, which is no Exception") from e


def unsignalled(kind: type[_E]) -> tuple[type[_E], ...]:
    """Return the classes to catch for errors of this kind, as in ``except unsignalled(Exception):``.

    No class where the error in hand is `from_signal` (a request's time-out): that one is the run's, wherever in Probe
    the signal came.
    """
    return () if from_signal(sys.exception()) else (kind,)


def from_signal(error: BaseException | None) -> bool:
    """Return whether a signal's handler, a trace function or a profile function raised an error.

    That is a function which is set as a handler now, or a call that got the arguments of one of the three.
    """
    trace = None if error is None else error.__traceback__
    if trace is None or trace.tb_next is None:  # the function that caught it raised it
        return False
    handlers = {code for number in signal.valid_signals() if (code := _code_of(signal.getsignal(number)))}
    below = walk_tb(trace.tb_next)
    return any(frame.f_code in handlers or _is_given_frame_below(frame) for frame, _ in below)


def _code_of(handler: Any) -> CodeType | None:
    while type(handler) is functools.partial:
        handler = handler.func
    if callable(handler) and type(handler) not in (FunctionType, MethodType):
        handler = type(handler).__call__
    function = handler.__func__ if type(handler) is MethodType else handler
    return function.__code__ if type(function) is FunctionType else None


def _is_given_frame_below(frame: FrameType) -> bool:
    """Return whether a call got the frame below it in the way that Python gives it.

    A signal's handler gets it after a number, a trace or profile function before an event, and a function of
    `sys.monitoring` its code before a number. It may be one that is not set any more, as a handler for a single time
    or a trace function that has raised.
    """
    code, own = frame.f_code, frame.f_locals
    count, rest = code.co_argcount, bool(code.co_flags & inspect.CO_VARARGS)
    if count + 2 * rest < 2:
        return False
    given = [own.get(name) for name in code.co_varnames[:count]]
    if rest and type(more := own.get(code.co_varnames[count + code.co_kwonlyargcount])) is tuple:
        given += more
    below = frame.f_back
    return below is not None and any(
        (type(one) is int and other is below)
        or (one is below and type(other) is str and other in _EVENTS)
        or (one is below.f_code and type(other) is int)
        for one, other in itertools.pairwise(given)
    )


_EVENTS = {"call", "line", "return", "exception", "opcode", "c_call", "c_return", "c_exception"}
_repr = reprlib.Repr()
_repr.maxlevel = 4
_repr.maxstring = _repr.maxother = _repr.maxlong = _MOST
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 12
