"""A server that forks training runs made to be killed (used by test_kill.py, see tests/torch/killed.py)."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import mindspore as ms
import numpy as np
from forked import serve, speaker
from mindspore import Tensor, nn, ops
from probe_mindspore import PrecisionDebugger

LAYERS = 6
WIDTH = 12


def run(config: str, said: int, pause: int) -> None:
    """One dumped training step; a line on `said` for each record made."""
    say = speaker(said, pause)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.CellList([nn.Dense(WIDTH, WIDTH) for _ in range(LAYERS)])
            self.norm = nn.LayerNorm((WIDTH,))
            for layer in self.layers:  # its input, its weight and its bias get gradients
                layer.bias.register_hook(lambda grad: say("between"))

        def construct(self, x: Tensor) -> Tensor:
            for i, layer in enumerate(self.layers):
                given, x = x, layer(x)
                if i:
                    past(given, f"Functional.gelu.{i}.backward", f"Cell.layers.{i}.Dense.backward.0")
                say(f"Cell.layers.{i}.Dense.forward.0")
                x = ops.gelu(x)
                say(f"Functional.gelu.{i}.forward")
            given, x = x, self.norm(x)
            past(given, "Cell.norm.LayerNorm.backward.0")
            say("Cell.norm.LayerNorm.forward.0")
            return x.square().mean()

    def past(given: Tensor, *made: str) -> None:
        """Say what is made when the gradient has come to what a call was given.

        To be called after that call: MindSpore calls the hooks of a tensor in the order in which they were registered,
        and 2.7, where Probe takes the call's last gradient by a hook on the same tensor, would call ours first.
        """

        def hook(grad: Tensor) -> None:
            for name in made:
                say(name)

        given.register_hook(hook)

    ms.set_context(runtime_num_threads=1)
    ms.set_seed(0)
    model = Net()
    optimizer = nn.Adam(model.trainable_params())
    batch = Tensor(np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32))
    forward = ms.value_and_grad(model, None, optimizer.parameters)
    debugger = PrecisionDebugger(config)
    say("made")
    debugger.start(model)
    _, grads = forward(batch)
    for i in range(LAYERS):
        say(f"Cell.layers.{i}.Dense.parameters_grad")
    optimizer(grads)
    debugger.stop()
    say("stopped")
    debugger.step()
    say("stepped")
    debugger.close()


if __name__ == "__main__":
    # No run in the parent: what MindSpore starts for its first operator does not outlive a fork.
    with TemporaryDirectory() as folder, PrecisionDebugger(dump_path=folder, level="mix") as debugger:
        debugger.start(nn.ReLU())  # finds all functions, once
        debugger.stop()
    serve(run)
