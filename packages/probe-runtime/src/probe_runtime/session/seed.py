"""Do the parts of `seed_all` that are the same for every framework: checks, Python's and numpy's seeds, undoing."""

import contextlib
import operator
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from probe_format.errors import UsageError
from probe_format.excerpts import brief

from probe_runtime.patching import Held

_LARGEST = 2**32 - 1  # numpy takes no larger seed

Change = Callable[[int, contextlib.ExitStack], None]
"""Changes something for a seed, and puts on the stack what undoes it."""


class Seeded(Held):
    """What `seed_all` did. `undo`, or leaving the ``with`` block, puts everything back as it was.

    Everything is: random states, environment variables, settings of algorithms, and dropout. More calls do nothing.
    """


def seed_process(
    seed: object,
    mode: object,
    rm_dropout: object,
    seed_framework: Change,
    be_deterministic: Callable[[contextlib.ExitStack], None],
    no_dropout: Callable[[], Held],
) -> Seeded:
    """Do what a framework's `seed_all` promises, and return what undoes it.

    seed, mode, rm_dropout: the arguments of `seed_all`, unchecked.
    seed_framework: seeds the framework, with the seed and the stack of what undoes it.
    be_deterministic: turns deterministic algorithms on; called only with mode.
    no_dropout: turns dropout off; called only with rm_dropout.

    Raises UsageError, before anything is changed, when an argument is wrong.
    """
    number = _checked_seed(seed, mode, rm_dropout)
    with contextlib.ExitStack() as stack:  # undoes the first half where the second fails
        _seed_python(number, stack)
        seed_framework(number, stack)
        if mode:
            be_deterministic(stack)
        if rm_dropout:
            stack.callback(no_dropout().undo)
        return Seeded(stack.pop_all().close)


def _checked_seed(seed: object, mode: object, rm_dropout: object) -> int:
    """Return the seed as an int. Raises UsageError, with every problem at once, when an argument is wrong."""
    number, problem = _number(seed)
    wrong = [problem] if problem else []
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            wrong.append(f"{name} must be True or False, not {brief(value)}")
    if wrong:
        raise UsageError(f"seed_all: {'; '.join(wrong)}. Nothing was changed.")
    return number


def seed_number(seed: object, who: str) -> int:
    """Return the seed as an int. Raises UsageError when it is none, or out of range.

    who: the name of the function that was given it.
    """
    number, problem = _number(seed)
    if problem:
        raise UsageError(f"{who}: {problem}.")
    return number


def _number(seed: object) -> tuple[int, str]:
    try:
        if isinstance(seed, bool | np.bool_):
            raise TypeError
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        return -1, f"seed must be an int, not {brief(seed)} ({type(seed).__name__})"
    inside = 0 <= number <= _LARGEST
    return number, "" if inside else f"seed must be from 0 to {_LARGEST}, not {brief(number)}"


def _seed_python(seed: int, stack: contextlib.ExitStack) -> None:
    """Seed random and numpy, and PYTHONHASHSEED for processes started from here; ``stack`` undoes it."""
    set_variable("PYTHONHASHSEED", str(seed), stack)
    stack.callback(random.setstate, random.getstate())
    random.seed(seed)
    state: Any = np.random.get_state()
    stack.callback(np.random.set_state, state)
    np.random.seed(seed)


def set_variable(name: str, value: str | None, stack: contextlib.ExitStack) -> None:
    """Set an environment variable until ``stack`` is closed, which puts its present value back.

    value: None to leave it as it is.
    """
    before = os.environ.get(name)
    if before is None:
        stack.callback(os.environ.pop, name, None)
    else:
        stack.callback(os.environ.__setitem__, name, before)
    if value is not None:
        os.environ[name] = value
