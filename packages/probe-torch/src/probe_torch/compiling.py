"""Whether torch is compiling, in every torch that Probe supports: asked for here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import _guards

__all__ = ["is_compiling"]

_marks_its_sessions: bool = hasattr(torch.compiler, "_compile_session_context")
_session: Any = _guards.CompileContext.try_get


def _in_session() -> bool:
    # Dynamo knows the first call: it inlines true, and sees nothing of the rest.
    return torch.compiler.is_compiling() or _session() is not None


is_compiling: Callable[[], bool] = torch.compiler.is_compiling if _marks_its_sessions else _in_session
"""True in code that Dynamo inlines, and in what torch calls while it compiles or exports.

A newer torch says both itself. An older one (2.6) only knows the code that is inlined: the calls that Dynamo makes on
fake tensors, to learn their shapes, would pass for the model's.
"""
