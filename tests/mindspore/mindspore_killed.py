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
