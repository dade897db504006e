"""How many modules of ours one tensor's way crosses, forward and backward. Counted, so the same on every machine."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from dumping import opened
from torch import Tensor, nn

OURS = re.compile(r"probe_\w+/.*\.py$")
FOLD = "probe_format/journal/fold.py"
#: What stop() does besides: it puts the patched functions back, and counts what was seen.
BESIDES = ("DumpingStep.pause", "Collector.flush_numbers", "Collector.tally", "DumpingStep.hand_on")


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


@contextmanager
def crossing(modules: set[str], *past: str) -> Iterator[None]:
    """Collect the modules of ours that are called. past: modules and functions left out with all that they call."""
    calls: list[bool] = []  # of those that are open, whether they are left out

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found = OURS.search(frame.f_code.co_filename)
            named = (found[0], frame.f_code.co_qualname) if found else ()
            calls.append((bool(calls) and calls[-1]) or any(name in past for name in named))
            if found and not calls[-1]:
                modules.add(found[0])
        elif event == "return" and calls:
            calls.pop()

    gc.disable()  # a collection calls what others have registered for it
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()


def way(folder: Path) -> tuple[set[str], set[str], set[str]]:
    """Return the modules from the hook to the journal, from the hook to dump.json, and of all that with stop()."""
    to_journal, to_dump, in_all = set[str](), set[str](), set[str]()
    net, x, grad = Net(), torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with opened(folder, level="L1") as debugger:
        # What is made once is made in the first step, or by the first call of a step, which nobody looks at.
        looks = ((set(), (), set(), ()), (to_journal, (FOLD,), to_dump, BESIDES), (to_dump, (), in_all, ()))
        for called, not_called, stopped, not_stopped in looks:
            debugger.start(net)
            net(x).backward(grad)
            with crossing(called, *not_called):
                net(x).backward(grad)
            with crossing(stopped, *not_stopped):
                debugger.stop()
            debugger.step()
    return to_journal, to_dump, in_all | to_dump


def test_one_tensor_crosses_few_modules(tmp_path: Path) -> None:
    to_journal, to_dump, in_all = way(tmp_path)
    assert "probe_format/journal/frames.py" in to_journal
    assert "probe_format/write/documents.py" in to_dump
    if torch.__version__ < "2.7":  # which has to be asked in two places whether it compiles
        to_journal, to_dump = (modules - {"probe_torch/compiling.py"} for modules in (to_journal, to_dump))
    assert len(to_journal) <= 12, "\n".join(sorted(to_journal))
    assert len(to_dump) <= 25, "\n".join(sorted(to_dump))
    assert len(in_all) <= 50, "\n".join(sorted(in_all))
