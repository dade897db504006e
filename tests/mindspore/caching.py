"""A process with MindSpore's compile cache on, watched or not: caching.py LOG DUMP|-: what two networks give.

The watched one is compiled while started, the other one afterwards.
"""

import sys
from pathlib import Path

import mindspore as ms
from graph_nets import batch
from mindspore import nn
from probe_mindspore import PrecisionDebugger

log, dump = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
first = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())
second = nn.SequentialCell(nn.Dense(3, 3), nn.ReLU())
debugger = None
if dump != "-":
    debugger = PrecisionDebugger(dump_path=dump, level="L0", task="statistics")
    debugger.start(first)
given = [first(batch()).asnumpy().tobytes()]
if debugger is not None:
    debugger.stop()
    debugger.step()
given += [second(batch()).asnumpy().tobytes(), first(batch()).asnumpy().tobytes()]
Path(log).write_text("\n".join(one.hex() for one in given))
