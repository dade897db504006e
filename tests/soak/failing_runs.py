"""Short runs in which a system call fails, forked from a process that has imported what they need.

Takes the name of a run. Reads one JSON request a line: {"n", "how", "folder"}; answers with the child's exit status and
the calls that it made below the folder. What a run prints is its result, in the file ``printed`` beside the folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def torch_run(dump: Path) -> None:
    """Two steps of a small network, at mix, each tensor a file; print losses and gradients bit by bit."""
    import torch
    from probe_torch import PrecisionDebugger
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))
    with PrecisionDebugger(dump_path=str(dump), level="mix", task="tensor") as debugger:
        for step in range(2):
            debugger.start(net)
            loss = net(torch.ones(2, 4) + step).sum()
            loss.backward()
            debugger.stop()
            debugger.step()
            print(loss.item().hex(), [p.grad.numpy().tobytes().hex() for p in net.parameters()])
            net.zero_grad()


def mindspore_run(dump: Path) -> None:
    """The same on MindSpore."""
    import mindspore as ms
    from mindspore import Tensor, nn
    from probe_mindspore import PrecisionDebugger

    ms.set_seed(0)
    net = nn.SequentialCell(nn.Dense(4, 4), nn.GELU(), nn.Dense(4, 1))
    train = ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())
    with PrecisionDebugger(dump_path=str(dump), level="mix", task="tensor") as debugger:
        for step in range(2):
            debugger.start(net)
            loss, gradients = train(Tensor(np.ones((2, 4), np.float32) + step))
            debugger.stop()
            debugger.step()
            print(loss.asnumpy().tobytes().hex(), [g.asnumpy().tobytes().hex() for g in gradients])


def save_run(dump: Path) -> None:
    """Two steps of values that are saved one by one."""
    from probe_save import Saver

    with Saver(dump_path=str(dump), task="tensor") as saver:
        for step in range(2):
            x = np.arange(6.0).reshape(2, 3) + step
            for i in range(3):
                x = saver.save(x * 2, f"x{i}")
            saver.step()
            print(x.tobytes().hex())


RUNS: dict[str, Any] = {"torch": torch_run, "save": save_run, "mindspore": mindspore_run}


def child(run: Any, folder: Path, request: dict[str, Any], shim: Any, answer: int) -> None:
    for stream, name in ((1, "printed"), (2, "said")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    status = 1
    try:
        shim.arm(request["n"], request["how"])
        run(folder / "dump")
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os.write(answer, str(shim.failing_count()).encode())
        os._exit(status)


if __name__ == "__main__":
    name = sys.argv[1]
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    chosen = RUNS[name]
    if name != "save":
        __import__(f"probe_{name}")
    for line in sys.stdin:
        request = json.loads(line)
        os.environ["FAILING_BELOW"] = os.path.join(request["folder"], "dump")
        came, went = os.pipe()
        pid = os.fork()
        if not pid:
            child(chosen, Path(request["folder"]), request, shim, went)
        os.close(went)
        count = os.read(came, 100).decode()
        os.close(came)
        print(json.dumps([os.waitpid(pid, 0)[1], count]), flush=True)
