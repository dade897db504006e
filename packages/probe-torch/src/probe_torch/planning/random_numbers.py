"""Let the random numbers of the run go on as if a plan had drawn none."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def unchanged_randomness() -> Iterator[None]:
    """Put the states of all random number generators on the CPU back when the block is left."""
    states = torch.random.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
