"""Promise 3, cheap: what a call's gradients cost beside the description of its tensors, in Python-level calls.

The calls are counted, not timed, so the numbers are the same on every machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import probe_runtime.collect
import probe_torch.hooks
import pytest
import torch
import torch.nn.functional as F
from dumping import opened
from torch import Tensor

HOOKS, COLLECT = (Path(p.__path__[0]) for p in (probe_torch.hooks, probe_runtime.collect))
FILES = {
    *(str(HOOKS / f"{name}.py") for name in ("gradients", "nodes")),
    str(COLLECT / "backward_records.py"),
}


def counted(work: Callable[[], Any]) -> int:
    """The calls of our functions for gradients, and the calls that these make of what is not ours."""
    count, files = 0, [""]

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event == "call":
            name = frame.f_code.co_filename
            files.append(name if "probe_" in name else files[-1])
            count += files[-1] in FILES
        elif event == "return":
            if len(files) > 1:
                files.pop()
        elif event == "c_call":
            count += files[-1] in FILES

    gc.disable()  # a collection calls what others have registered for it
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize(
    ("call", "bound"),
    [
        (lambda x, w, b: F.relu(x), 32),  # one node
        (lambda x, w, b: F.linear(x, w, b), 71),  # two nodes: the weight is transposed by one of its own
        (lambda x, w, b: torch.mul(x, x), 47),  # a sum of two shares
    ],
    ids=["relu", "linear", "a sum"],
)
def test_the_gradients_of_a_call_cost_few_calls(
    call: Callable[[Tensor, Tensor, Tensor], Tensor], bound: int, tmp_path: Path
) -> None:
    x, w, b = (torch.randn(*shape, requires_grad=True) for shape in ((4, 4), (4, 4), (4,)))
    g = torch.randn(4, 4)
    with opened(tmp_path, level="L1") as debugger:
        x = x * 1.0
        debugger.start()
        assert 0 < counted(lambda: call(x, w, b).backward(g)) <= bound
        debugger.stop()


def test_a_call_leaves_few_objects_to_the_collector(tmp_path: Path) -> None:
    """Python's collector runs after so many new objects, and looks at all of the process when enough have stayed."""
    x = torch.randn(4, 4, requires_grad=True)

    def called(count: int) -> Tensor:
        out = x
        for _ in range(count):
            out = F.relu(out)
        return out

    with opened(tmp_path, level="L1") as debugger:
        debugger.start()
        first = called(5)  # what is made once is made now
        gc.disable()
        gc.collect()
        try:
            last, new = called(50), gc.get_count()[0]
        finally:
            gc.enable()
    assert first is not last  # both are kept, as a run keeps its loss
    assert new / 50 <= 22
