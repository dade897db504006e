"""Seed every random generator and, on request, use deterministic algorithms and turn dropout off, until undone."""

import contextlib
import importlib
import importlib.util
import os
import sys
from typing import Any

import torch
from probe_format.excerpts import unsignalled
from probe_runtime.notice import notice
from probe_runtime.session import Seeded, seed_process, set_variable

from .dropout import no_dropout

_CUBLAS = (":4096:8", ":16:8")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> Seeded:
    """Seed random, numpy, torch and every accelerator, and PYTHONHASHSEED for processes started from here.

    seed: 0 to 2**32 - 1.
    mode: use deterministic algorithms too (slower, and torch raises where it has none).
    rm_dropout: let dropout pass its input through, also in modules that exist already.

    A plain call stays in force; ``with seed_all(): ...`` or ``seed_all().undo()`` puts everything back.

    Raises UsageError, before anything is changed, when an argument is wrong.
    """
    return seed_process(seed, mode, rm_dropout, _seed, _be_deterministic, no_dropout)


def _seed(seed: int, stack: contextlib.ExitStack) -> None:
    stack.callback(torch.set_rng_state, torch.get_rng_state())
    torch.manual_seed(seed)
    for device in _accelerators():
        # Reading the state of an unused device would initialise it, and take memory; its first use is seeded.
        if device.is_available() and getattr(device, "is_initialized", lambda: False)():
            stack.callback(device.set_rng_state_all, device.get_rng_state_all())
        device.manual_seed_all(seed)


def _accelerators() -> list[Any]:
    npu = None
    if "torch_npu" in sys.modules or importlib.util.find_spec("torch_npu") is not None:
        try:
            npu = importlib.import_module("torch_npu").npu
        except unsignalled(Exception) as error:  # installed, but not for this machine
            notice(f"seed_all: torch_npu is installed but cannot be imported ({error}).", UserWarning)
    return [torch.cuda] if npu is None else [torch.cuda, npu]


def _be_deterministic(stack: contextlib.ExitStack) -> None:
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in _CUBLAS:
        cuda: Any = torch.cuda
        if cuda.is_initialized():
            notice(
                "seed_all(mode=True): CUDA is in use already, so CUBLAS_WORKSPACE_CONFIG may come too late. "
                "Call seed_all before the first CUDA operation.",
                UserWarning,
            )
        set_variable("CUBLAS_WORKSPACE_CONFIG", _CUBLAS[0], stack)
    set_variable("HCCL_DETERMINISTIC", "true", stack)
    stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
    torch.use_deterministic_algorithms(True)
    _set(torch.backends.cudnn, "deterministic", True, stack)
    _set(torch.backends.cudnn, "benchmark", False, stack)


def _set(owner: Any, name: str, value: object, stack: contextlib.ExitStack) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
