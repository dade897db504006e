"""A process with MindSpore's compile cache on, watched or not: caching.py LOG DUMP|- [LEVEL].

It logs what two networks give and how a training step moves them. The watched one is compiled while started, the
other one afterwards. (In MindSpore 2.10 itself, what `value_and_grad` gives is other memory once it comes out of
the cache.)
"""

import sys
from pathlib import Path

import mindspore as ms
from graph_nets import batch
from mindspore import nn
from probe_mindspore import PrecisionDebugger

log, dump, *levels = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
first = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())
second = nn.SequentialCell(nn.Dense(3, 3), nn.ReLU())


class Summed(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x):
        return self.net(x).sum()


def given(net: nn.Cell) -> list[bytes]:
    """The bits of an output, of a loss, and of the weights and their momentum after an update by the gradients."""
    output = net(batch())
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    loss = nn.TrainOneStepCell(Summed(net), optimizer).set_train()(batch())
    return [t.asnumpy().tobytes() for t in (output, loss, *optimizer.parameters, *optimizer.moments)]


debugger = None
if dump != "-":
    debugger = PrecisionDebugger(dump_path=dump, level=levels[0], task="statistics")
    debugger.start(first)
found = given(first)
if debugger is not None:
    debugger.stop()
    debugger.step()
found += [*given(second), *given(first)]
Path(log).write_text("\n".join(one.hex() for one in found))
