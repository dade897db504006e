"""Detect whether torch is compiling, run compiled code uncompiled for a while, and keep Probe's functions out of what
torch.compile compiles; for every version of torch that Probe supports."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import _guards

_marks_its_sessions: bool = hasattr(torch.compiler, "_compile_session_context")
_session: Any = _guards.CompileContext.try_get
_frames: Any = torch._C._dynamo.eval_frame  # which is there before anything of Dynamo is imported


def _in_session() -> bool:
    # Dynamo evaluates the first call to True while it inlines this, so it never traces the second.
    return torch.compiler.is_compiling() or _session() is not None


is_compiling: Callable[[], bool] = torch.compiler.is_compiling if _marks_its_sessions else _in_session
"""Return True in code that Dynamo inlines, and in what torch calls while it compiles or exports.

A newer torch's own function covers both. An older one's (2.6) covers only the code that is inlined: the calls that
Dynamo makes on fake tensors, to learn their shapes, would pass for the model's.
"""


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled regions uncompiled, in all threads, until the block is left; nothing is compiled anew for it.

    The stance that was there comes back, unless the user has set another one meanwhile, which stays.
    """
    ours: Any = torch.compiler.set_stance("force_eager")
    try:
        yield
    finally:
        last: Any = torch.compiler.set_stance("default")  # its constructor tells which stance it replaces
        (ours if last.prev is ours.stance else last).__exit__(None, None, None)


def left_out(event: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that torch.compile leaves out of what it compiles, with all that it calls.

    (`torch.compiler.disable` does it, and imports all of Dynamo.)
    """

    def call(*args: Any) -> Any:
        before = _frames.set_eval_frame(None)
        try:
            return event(*args)
        finally:
            _frames.set_eval_frame(before)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    if hasattr(_frames, "skip_code"):  # to torch 2.6
        _frames.skip_code(call.__code__)
    else:
        skip, default = _frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT
        _frames.set_code_exec_strategy(call.__code__, _frames._FrameExecStrategy(skip, default))
    return call
