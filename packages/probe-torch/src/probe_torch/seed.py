"""The same random numbers in every run, and if asked for the same algorithms; all of it can be undone."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import operator
import os
import random
import sys
import warnings
from types import TracebackType
from typing import Any

import numpy as np
import torch
from probe_format.errors import UsageError

from .dropout import NoDropout

__all__ = ["Seeded", "seed_all"]

_LARGEST = 2**32 - 1  # numpy takes no larger seed
_CUBLAS = (":4096:8", ":16:8")


class Seeded:
    """What `seed_all` did. `undo`, or leaving the ``with`` block, puts everything back as it was."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def undo(self) -> None:
        """Put back random states, environment variables, algorithm settings and dropout. Once is enough."""
        self._stack.close()

    def __enter__(self) -> Seeded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> Seeded:
    """Seed random, numpy, torch and every accelerator, and PYTHONHASHSEED for processes started from here.

    seed: 0 to 2**32 - 1. mode: deterministic algorithms too (torch raises where it has none; slower).
    rm_dropout: dropout passes its input through, in modules that exist already too. A plain call stays in
    force; ``with seed_all(): ...`` or ``seed_all().undo()`` puts everything back.

    Raises UsageError, before anything is changed, when an argument is wrong.
    """
    number = _checked(seed, mode, rm_dropout)
    seeded = Seeded()
    with contextlib.ExitStack() as stack:  # undoes the first half where the second fails
        _seed(number, stack)
        if mode:
            _be_deterministic(stack)
        if rm_dropout:
            stack.callback(NoDropout().undo)
        seeded._stack = stack.pop_all()
    return seeded


def _checked(seed: object, mode: object, rm_dropout: object) -> int:
    wrong = []
    number = -1
    try:
        if isinstance(seed, bool | np.bool_):
            raise TypeError
        number = operator.index(seed)  # type: ignore[arg-type]
        if not 0 <= number <= _LARGEST:
            wrong.append(f"seed must be from 0 to {_LARGEST}, not {number}")
    except TypeError:
        wrong.append(f"seed must be an int, not {seed!r} ({type(seed).__name__})")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            wrong.append(f"{name} must be True or False, not {value!r}")
    if wrong:
        raise UsageError(f"seed_all: {'; '.join(wrong)}. Nothing was changed.")
    return number


def _seed(seed: int, stack: contextlib.ExitStack) -> None:
    _set_variable("PYTHONHASHSEED", str(seed), stack)
    stack.callback(random.setstate, random.getstate())
    random.seed(seed)
    stack.callback(np.random.set_state, np.random.get_state())
    np.random.seed(seed)
    stack.callback(torch.set_rng_state, torch.get_rng_state())
    torch.manual_seed(seed)
    for device in _accelerators():
        # Asking a sleeping device for its state would wake it up, and take memory; its first use is seeded.
        if device.is_available() and getattr(device, "is_initialized", lambda: False)():
            stack.callback(device.set_rng_state_all, device.get_rng_state_all())
        device.manual_seed_all(seed)


def _accelerators() -> list[Any]:
    npu = None
    if "torch_npu" in sys.modules or importlib.util.find_spec("torch_npu") is not None:
        try:
            npu = importlib.import_module("torch_npu").npu
        except Exception as error:  # installed, but not for this machine
            warnings.warn(f"seed_all: torch_npu is installed but cannot be imported ({error}).", stacklevel=4)
    return [torch.cuda] if npu is None else [torch.cuda, npu]


def _be_deterministic(stack: contextlib.ExitStack) -> None:
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in _CUBLAS:
        cuda: Any = torch.cuda
        if cuda.is_initialized():
            warnings.warn(
                "seed_all(mode=True): CUDA is in use already, so CUBLAS_WORKSPACE_CONFIG may come too late. "
                "Call seed_all before the first CUDA operation.",
                stacklevel=3,
            )
        _set_variable("CUBLAS_WORKSPACE_CONFIG", _CUBLAS[0], stack)
    _set_variable("HCCL_DETERMINISTIC", "true", stack)
    stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
    torch.use_deterministic_algorithms(True)
    _set(torch.backends.cudnn, "deterministic", True, stack)
    _set(torch.backends.cudnn, "benchmark", False, stack)


def _set(owner: Any, name: str, value: object, stack: contextlib.ExitStack) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def _set_variable(name: str, value: str, stack: contextlib.ExitStack) -> None:
    before = os.environ.get(name)
    if before is None:
        stack.callback(os.environ.pop, name, None)
    else:
        stack.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value
