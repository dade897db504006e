"""Begin a step while another thread is about to call the hooks of a parameter: python overtaken.py FOLDER.

The step before had hooked the parameter while nothing else ran.
"""

from __future__ import annotations

import sys
import threading
import time

import torch
from probe_torch import PrecisionDebugger
from probe_torch.hooks.parameter_gradients import ParameterGradients

net = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(1000, 1000, bias=False)])
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L0")
hook, begun = ParameterGradients.hook, threading.Event()


def step() -> None:
    debugger.start(net)
    net[0](torch.ones(2)).sum().backward()
    debugger.stop()
    debugger.step()


def train() -> None:
    loss = torch.nn.functional.linear(torch.ones(1000, 1000), net[1].weight).sum()
    begun.set()
    loss.backward(retain_graph=True)  # else it waits for the interpreter's lock before, to free what it kept


def hook_late(self: ParameterGradients) -> None:
    other.start()
    begun.wait()
    time.sleep(0.02)
    sys.setswitchinterval(100)  # what waits for the lock gets it when this thread gives it up
    until = time.monotonic() + 60
    while net[1].weight.grad is None and time.monotonic() < until:
        pass
    assert net[1].weight.grad is not None
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        pass
    hook(self)
    sys.setswitchinterval(0.005)


step()
other = threading.Thread(target=train)
ParameterGradients.hook = hook_late  # type: ignore[method-assign]
step()
other.join()
ParameterGradients.hook = hook  # type: ignore[method-assign]
step()
