"""A server that forks runs made to be killed (used by test_kill.py).

Reads one JSON request a line: {"dump": path, "said": fd, "pause": number}. Forks; the child saves values one after
another and writes to the pipe `said`, one line each, the name of every record once save() has returned (or, for a
gradient, once backward() has).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import probe_save as ps
from forked import serve, speaker

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SIZES = (3, 1000, 300_000)


def array(i: int) -> Any:
    """What is saved as number i."""
    return np.random.default_rng(i).standard_normal(SIZES[i % len(SIZES)]).astype(np.float32)


def run(dump: str, said: int, pause: int) -> None:
    say = speaker(said, pause)
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


if __name__ == "__main__":
    if torch is not None:
        torch.set_num_threads(1)
        torch.ones(1, requires_grad=True).sum().backward()
    serve(run)
