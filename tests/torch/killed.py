"""A server that forks training runs made to be killed (used by test_kill.py).

Reads one JSON request a line: {"config": path, "said": fd, "pause": number}. Forks; the child trains one dumped step
and writes to the pipe `said`, one line each, the name of every record that it has certainly made: a call's once
it has returned, a backward one's once the gradient has gone past; "between" where a call has got one of its
gradients and lacks others. torch is imported once.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from forked import serve, speaker
from probe_torch import PrecisionDebugger
from torch import Tensor, nn

LAYERS = 12
WIDTH = 24


class Passed(torch.autograd.Function):
    """The identity; says so when the gradient comes back through it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, say: Callable[[], None]) -> Tensor:
        ctx.say = say
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.say()
        return grad, None


class Net(nn.Module):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.say = say
        for layer in self.layers:  # its input, its weight and its bias get gradients, the bias first
            layer.bias.register_hook(lambda grad: say("between"))

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            self.say(f"Functional.linear.{i}.forward")
            self.say(f"Module.layers.{i}.Linear.forward.0")
            x = F.gelu(x)
            self.say(f"Functional.gelu.{i}.forward")
            x = Passed.apply(x, lambda i=i: self.after(i))
        x = self.norm(x)
        self.say("Module.norm.LayerNorm.forward.0")
        return x

    def after(self, i: int) -> None:
        """The gradient has come to layer i's activation: everything later is done."""
        if i + 1 < LAYERS:
            for name in ("Functional.linear.{}.backward", "Functional.gelu.{}.backward"):
                self.say(name.format(i + 1))
            self.say(f"Module.layers.{i + 1}.Linear.backward.0")
        else:
            self.say("Module.norm.LayerNorm.backward.0")


def run(config: str, said: int, pause: int = 0) -> None:
    """One dumped training step; a line on `said` for each record made."""
    say = speaker(said, pause)
    torch.manual_seed(0)
    model = Net(say)
    optimizer = torch.optim.AdamW(model.parameters())
    debugger = PrecisionDebugger(config)
    batch = torch.randn(8, WIDTH)
    say("made")
    debugger.start(model)
    loss = model(batch).square().mean()
    say("Tensor.square.0.forward")
    loss.backward()
    for i in range(LAYERS):
        say(f"Module.layers.{i}.Linear.parameters_grad")
    optimizer.step()
    debugger.stop()
    say("stopped")
    debugger.step()
    say("stepped")
    debugger.close()


def warm() -> None:
    """A whole run that nobody looks at, so that the children need not import and cache everything anew."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as nowhere:
        config = os.path.join(folder, "config.json")
        with open(config, "w") as file:
            json.dump({"task": "tensor", "level": "mix", "dump_path": os.path.join(folder, "dump")}, file)
        run(config, nowhere.fileno())


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm()
    serve(run)
