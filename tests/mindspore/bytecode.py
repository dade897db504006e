"""Whether this MindSpore captures bytecode on this Python: it refuses to on 3.12."""

from __future__ import annotations

import mindspore as ms
import pytest
from mindspore import Tensor

__all__ = ["CAPTURES_BYTECODE", "needs_bytecode"]


def _asked() -> bool:
    try:
        ms.jit(_next, capture_mode="bytecode")(Tensor([1.0]))
    except Exception as e:
        if "does not support Python" in str(e):
            return False
        raise
    return True


def _next(x: Tensor) -> Tensor:
    return x + 1


CAPTURES_BYTECODE = _asked()

needs_bytecode = pytest.mark.skipif(
    not CAPTURES_BYTECODE, reason="this MindSpore captures no bytecode on this Python"
)
