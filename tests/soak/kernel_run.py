"""Commands of probe-kernel, and a control file, whose system calls fail (forked_runs.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from binfiles import made, written
from forked_runs import Refused, serve
from probe_kernel import KernelDump, cli, settings
from probe_kernel.control.control_file import settings_text, write_settings
from trees import TIME, conv, tensor

LONG = "Op.Default_" + "x" * 205 + f"_Op-op1.1.2.{TIME}"


def prepare(folder: Path, mode: str) -> None:
    """Write what is read."""
    inside = folder / "in" / "rank_0" / "Net" / "0"
    for iteration in range(2):
        conv(inside / str(iteration))
        tensor(
            inside / str(iteration),
            f"ReLU.Default_relu_ReLU-op2.2.7.{TIME + 9}.input.0.DefaultFormat.bfloat16.npy",
        )
    for name in ("Op.Default_x_Op-op1.1.2.3", LONG):
        (folder / "bin").mkdir(exist_ok=True)
        written(folder / "bin", made(1, 2, (3,), np.float32([1, 2, 3]).tobytes()), name)
    if mode == "convert":  # one that is written in pieces
        padded, pattern = (1, 4, 513, 128, 16), np.arange(1, 1 << 15, dtype=np.uint16)
        large = made(2, 3, padded, np.resize(pattern, padded).tobytes(), (1, 61, 513, 128))
        written(folder / "bin", large, "Op.Default_large_Op-op2.1.2.3")


def run(folder: Path, mode: str, say: Callable[[str], None]) -> bytes:
    """Run one command; return its exit code."""
    source, out = str(folder / "in"), ["-o", str(folder / "out")]
    if mode == "control":
        file = folder / "out" / "data_dump.json"
        text = settings_text(settings(KernelDump(path=str(folder / "dump")), "cpu", {}))
        try:
            write_settings(file, text)
        except OSError as error:  # as mindspore.dump does
            raise Refused(f"{file} cannot be written: {error.strerror}.") from None
        return b"0"
    words = {
        "export": ["export", source, *out],
        "statistics": ["statistics", source, *out],
        "convert": ["convert", str(folder / "bin"), *out, "--format", "ND"],
        "check": ["check", source],
    }
    return str(cli.main(words[mode])).encode()


if __name__ == "__main__":
    serve(run, "export", "convert", "statistics", "check", prepare=prepare)
