"""Values of numpy saved in two steps, by a run whose system calls fail (forked_runs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from forked_runs import Refused, serve
from probe_format.errors import ConfigError
from probe_save import Saver

MODES = {"statistics": {}, "tensor": {"task": "tensor"}}


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Save four values a step; return the bits of all."""
    x = np.arange(6, dtype=np.float32)
    try:
        saver = Saver(dump_path=folder / "dump", **MODES[mode])
    except ConfigError as error:
        raise Refused(str(error)) from None
    for step in range(2):
        for number in range(2):
            x = saver.save(np.sin(x), "sin")
            say(f"{step} sin.{number}.debug")
            pair = saver.save({"x": x, "twice": [2 * x, step]}, "pair")
            say(f"{step} pair.{number}.debug")
            x = pair["twice"][0]
        saver.step()
        say(f"{step} whole")
    saver.close()
    return x.tobytes()


if __name__ == "__main__":
    serve(run, *MODES)
