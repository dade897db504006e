"""`python watched_loop.py DUMP`: train and watch until somebody kills it; print each step that has ended."""

import itertools
import sys

import mindspore
from mindspore import nn, ops, value_and_grad
from probe_mindspore import PrecisionDebugger

mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
net = nn.SequentialCell(nn.Dense(8, 64), nn.Dense(64, 8))
optimizer = nn.SGD(net.trainable_params(), 1e-3)
grads_of = value_and_grad(lambda x: ops.square(net(x)).sum(), None, optimizer.parameters)
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="watch", updates=True, when=["SIGUSR1"])
for step in itertools.count():
    debugger.start(net)
    _, grads = grads_of(ops.ones((4, 8)))
    optimizer(grads)
    debugger.stop()
    debugger.step()
    print(step, flush=True)
