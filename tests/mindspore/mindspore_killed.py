"""A server that forks training runs made to be killed (used by test_kill.py, see tests/torch/killed.py).

MindSpore's threads do not live through a fork, so each run is a process of its own, started ahead of time: it
imports and waits until it is told which request to run.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys

LAYERS = 6
WIDTH = 12


def run(config: str, said: int, pause: int) -> None:
    """One dumped training step; a line on `said` for each record made."""
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor, nn, ops
    from probe_mindspore import PrecisionDebugger

    lines = itertools.count(1)

    def say(name: str) -> None:
        os.write(said, f"{name}\n".encode())
        if next(lines) == pause:
            os.kill(os.getpid(), signal.SIGSTOP)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.CellList([nn.Dense(WIDTH, WIDTH) for _ in range(LAYERS)])
            self.norm = nn.LayerNorm((WIDTH,))
            for layer in self.layers:  # its input, its weight and its bias get gradients
                layer.bias.register_hook(lambda grad: say("between"))

        def construct(self, x: Tensor) -> Tensor:
            for i, layer in enumerate(self.layers):
                x = layer(x)
                say(f"Cell.layers.{i}.Dense.forward.0")
                x = ops.gelu(x)
                say(f"Functional.gelu.{i}.forward")
                if i:
                    x.register_hook(lambda grad, i=i: after(i))
            x = self.norm(x)
            say("Cell.norm.LayerNorm.forward.0")
            return x.square().mean()

    def after(i: int) -> None:
        """The gradient has come to layer i's activation: everything later is done."""
        if i + 1 < LAYERS:
            say(f"Functional.gelu.{i + 1}.backward")
            say(f"Cell.layers.{i + 1}.Dense.backward.0")
        else:
            say("Cell.norm.LayerNorm.backward.0")

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


def _waiting(said: int) -> subprocess.Popen[str]:
    """A run that has imported everything and waits for its config."""
    command = [sys.executable, __file__, "run"]
    # stdout is where the pids go, and MindSpore warns there.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, pass_fds=[said]
    )


def serve() -> None:
    ready: list[subprocess.Popen[str]] = []
    dead: list[subprocess.Popen[str]] = []
    for line in sys.stdin:
        request = json.loads(line)
        while len(ready) < 2:
            ready.append(_waiting(request["said"]))
        os.set_inheritable(request["said"], True)
        child = ready.pop(0)
        assert child.stdin is not None
        child.stdin.write(line)
        child.stdin.flush()
        dead.append(child)
        for process in dead:
            process.poll()  # so that the killed do not stay as zombies
        print(child.pid, flush=True)
    for process in ready:  # nobody needs them, and they may still be importing
        process.kill()
        process.wait()


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        import mindspore  # noqa: F401
        import probe_mindspore  # noqa: F401

        request = sys.stdin.readline()
        if request:
            run(**json.loads(request))
        os._exit(0)
    serve()


if __name__ == "__main__":
    main()
