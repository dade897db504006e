"""Dump a step of a small model in which values are lost, each in a process of its own.

lost_model.py FOLDER: writes whole; killed (by SIGKILL, between two gradients of one call); half (by SIGKILL, between
the gradients of two parameters of a module); unwritten (the file of a gradient cannot be written); broken (a gradient
that a function gets, of which it makes infinity, and one of a parameter cannot be described). The runs make two steps,
of which the second is whole.
"""

import errno
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from dumped_steps import dumped
from probe_torch.tensors.leaf import TensorLeaf
from torch import nn

UNWRITTEN = "Functional.linear.1.backward.output.1.pt"
real_writev, real_tensor = os.writev, TensorLeaf.tensor


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.broken = nn.Linear(8, 8), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.fc(x)
        return found + torch.zeros(8, requires_grad=True).sqrt() if self.broken else found


def writev(fd: int, parts: Any) -> int:
    if Path(os.readlink(f"/proc/self/fd/{fd}")).name == UNWRITTEN:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real_writev(fd, parts)


def tensor(self: TensorLeaf, placement: Any, value: Any, path: Any, *args: Any, **keys: Any) -> bytes:
    parameter = placement.record == "Module.1.fc.Linear.parameters_grad" and path == ("weight",)
    if parameter or (placement.record, placement.category) == ("Tensor.sqrt.0.backward", "input"):
        raise RuntimeError("broken on purpose")
    return real_tensor(self, placement, value, path, *args, **keys)


def run(folder: Path, how: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Layer(), Layer(), Layer())

    def train(step: int) -> None:
        net[1].broken = how == "broken" and not step
        loss = net(torch.full((2, 8), 0.3)).square().mean()
        if step:
            os.writev, TensorLeaf.tensor = real_writev, real_tensor
        elif how == "unwritten":
            os.writev = writev
        elif how == "broken":
            TensorLeaf.tensor = tensor
        elif how in ("killed", "half"):
            last = net[1].fc.bias if how == "killed" else net[1].fc.weight
            last.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        loss.backward()

    dumped(folder, train, net, 2, task="tensor")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for how in ("whole", "killed", "half", "unwritten", "broken"):
        # Each in a child that has run no backward pass yet, whose threads a fork would lose.
        child = os.fork()
        if not child:
            run(Path(sys.argv[1], how), how)
            os._exit(0)
        os.waitpid(child, 0)
