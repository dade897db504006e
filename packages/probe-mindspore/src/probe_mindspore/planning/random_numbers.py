"""Let a step draw random numbers, and later steps draw what they would have drawn without it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np

from probe_mindspore.patching.primitives import labels_of
from probe_mindspore.seed import keep_random_state

# How Primitives name their seeds; each that draws has some of these.
_SEEDS = ("Seed0", "Seed1", "seed", "seed0", "seed1", "seed2")
_MARK = "probe_plan"


@contextlib.contextmanager
def unchanged_randomness(models: Sequence[Any]) -> Iterator[None]:
    """Put the states of all random number generators on the CPU back when the block is left.

    The numbers of many operators come from states inside MindSpore's kernels, which nothing reads or sets. A kernel
    belongs to a Primitive's attributes, so these are others within the block, and the run's kernels stay where they
    are: functions get other seeds, and Primitives an attribute more.

    models: whose Cells hold Primitives.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        state: Any = np.random.get_state()
        stack.callback(np.random.set_state, state)
        keep_random_state(stack)
        seed = ms.get_seed()
        if seed is not None:
            ms.set_seed((seed ^ 0x2B5A_6C93) & 0x7FFF_FFFF or 1)  # another one
            np.random.set_state(state)  # which that has set, too
        for primitive, _ in labels_of(models).values():
            if any(hasattr(primitive, name) or name in primitive.attrs for name in _SEEDS):
                primitive.add_prim_attr(_MARK, True)
                stack.callback(primitive.del_prim_attr, _MARK)
        yield
