"""`python watched_loop.py DUMP`: train and watch until somebody kills it; print each step that has ended."""

import itertools
import sys

import torch
from probe_torch import PrecisionDebugger

net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
debugger = PrecisionDebugger(
    dump_path=sys.argv[1], task="watch", moments=True, updates=True, when=["SIGUSR1"]
)
for step in itertools.count():
    debugger.start(net)
    net(torch.ones(4, 8)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    debugger.stop()
    debugger.step()
    print(step, flush=True)
