"""Make the weights and the data of both twins with numpy alone, whose old generator gives the same on every version."""

from __future__ import annotations

import numpy as np

WIDTH, HIDDEN, LAYERS = 8, 16, 2
SHAPES = {
    **{
        f"layers.{i}.{name}": shape
        for i in range(LAYERS)
        for name, shape in {
            "norm.scale": (WIDTH,),
            "norm.shift": (WIDTH,),
            "up.weight": (HIDDEN, WIDTH),
            "up.bias": (HIDDEN,),
            "down.weight": (WIDTH, HIDDEN),
            "down.bias": (WIDTH,),
        }.items()
    },
    "head.weight": (4, WIDTH),
    "head.bias": (4,),
}


def weights() -> dict[str, np.ndarray]:
    """Return the parameters by name."""
    draw = np.random.RandomState(0)
    return {name: (0.5 * draw.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def data() -> np.ndarray:
    """Return a batch."""
    return np.random.RandomState(1).standard_normal((6, WIDTH)).astype(np.float32)
