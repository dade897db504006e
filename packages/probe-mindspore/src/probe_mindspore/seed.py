"""Seed every random generator and, on request, use deterministic algorithms and turn dropout off, until undone."""

import contextlib
import importlib
from typing import Any

import mindspore as ms
import mindspore.dataset as dataset
from probe_runtime.session import Seeded, seed_process, set_variable

from .dropout import no_dropout
from .module_kind import torch_on_mindspore


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> Seeded:
    """Seed random, numpy, MindSpore (initializers, operators, datasets) and PYTHONHASHSEED for new processes.

    A `torch` built on MindSpore is seeded too, if it is imported before.

    seed: 0 to 2**32 - 1.
    mode: use deterministic operators and collectives too (slower); False leaves the setting as it is.
    rm_dropout: let dropout pass its input through, also in Cells that exist already, unless they are compiled.

    A plain call stays in force; ``with seed_all(): ...`` or ``seed_all().undo()`` puts everything back.

    Raises UsageError, before anything is changed, when an argument is wrong.
    """
    return seed_process(seed, mode, rm_dropout, _seed, _be_deterministic, no_dropout)


# Not `import mindspore.common.seed as`: a function of that name hides the module there.
_ms_seed: Any = importlib.import_module("mindspore.common.seed")


def keep_random_state(stack: contextlib.ExitStack) -> None:
    """Put MindSpore's seeds and the state of its generator back when ``stack`` is closed."""
    table: dict[Any, int] = getattr(_ms_seed, "_KERNEL_SEED", {})
    stack.callback(table.update, dict(table))
    stack.callback(table.clear)  # undone last-in, first-out: this comes before the update
    stack.callback(setattr, _ms_seed, "_GLOBAL_SEED", ms.get_seed())
    stack.callback(dataset.config.set_seed, dataset.config.get_seed())
    stack.callback(ms.set_rng_state, ms.get_rng_state())


def _seed(seed: int, stack: contextlib.ExitStack) -> None:
    keep_random_state(stack)
    ms.set_seed(seed)  # which seeds numpy and the datasets too
    ms.manual_seed(seed)
    torch = torch_on_mindspore()
    if torch is not None:  # it draws from a generator of its own
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        torch.manual_seed(seed)


# The variables that MindSpore sets beside its own switch; which ones depends on the version.
_VARIABLES = ("HCCL_DETERMINISTIC", "TE_PARALLEL_COMPILER", "LCCL_DETERMINISTIC")


def _be_deterministic(stack: contextlib.ExitStack) -> None:
    for name in _VARIABLES:
        set_variable(name, None, stack)
    # Not `set_deterministic`: that one raises when it is called again.
    before = ms.get_context("deterministic")
    stack.callback(_set_deterministic, before)
    _set_deterministic("ON")


def _set_deterministic(value: str) -> None:
    if ms.get_context("deterministic") != value:
        ms.set_context(deterministic=value)
