"""A process that exports a network and a function, watched or not: exporting.py FOLDER [LEVEL]."""

import sys
from pathlib import Path

import mindspore as ms
from graph_nets import batch
from mindspore import nn
from probe_mindspore import PrecisionDebugger

folder, levels = Path(sys.argv[1]), sys.argv[2:]
folder.mkdir()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh())


@ms.jit
def doubled(x):
    return net(x) * 2


debugger = None
if levels:
    debugger = PrecisionDebugger(dump_path=str(folder) + ".dump", level=levels[0], task="statistics")
    debugger.start(net)
for kind in ("MINDIR", "ONNX"):
    ms.export(net, batch(), file_name=str(folder / "net"), file_format=kind)
ms.export(doubled, batch(), file_name=str(folder / "doubled"), file_format="MINDIR")
net(batch())
ms.save_checkpoint(net, str(folder / "net.ckpt"))
if debugger is not None:
    debugger.stop()
    debugger.step()
