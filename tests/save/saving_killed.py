"""A server that forks runs made to be killed (used by test_kill.py).

Reads one JSON request a line: {"dump": path, "said": fd, "pause": number}. Forks; the child saves values one after
another and writes to the pipe `said`, one line each, the name of every record once save() has returned (or, for a
gradient, once backward() has). After line number `pause` it stops itself. Prints the child's pid.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from typing import Any

import numpy as np
import probe_save as ps

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SIZES = (3, 1000, 300_000)


def array(i: int) -> Any:
    """What is saved as number i."""
    return np.random.default_rng(i).standard_normal(SIZES[i % len(SIZES)]).astype(np.float32)


def run(dump: str, said: int, pause: int) -> None:
    lines = itertools.count(1)

    def say(name: str) -> None:
        os.write(said, f"{name}\n".encode())
        if next(lines) == pause:
            os.kill(os.getpid(), signal.SIGSTOP)

    saver = ps.Saver(dump_path=dump, task="tensor")
    say("made")
    for i in range(0, 200, 2):
        saver.save({"a": array(i), "i": i}, "array", save_backward=False)
        say(f"array.{i // 2}.debug")
        if torch is not None:
            t = torch.from_numpy(array(i + 1)).requires_grad_()
            saver.save(t, "tensor")
            say(f"tensor.{i // 2}.debug")
            (t * t).sum().backward()
            say(f"tensor_grad.{i // 2}.debug")
    saver.close()
    say("closed")


def main() -> None:
    if torch is not None:
        torch.set_num_threads(1)
        torch.ones(1, requires_grad=True).sum().backward()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are never waited for
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                run(**request)
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
