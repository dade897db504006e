"""How fast tensors come out of the device's layouts: 256 MB of fp16, in GB/s, beside a plain copy of the same bytes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from probe_kernel.files.tensor_layouts import convert

from .tables import table

RESULTS = Path(__file__).parent / "results"
#: source, target, shape on the device, the tensor's own shape: 2**27 elements each
CASES: tuple[tuple[str, str, tuple[int, ...], tuple[int, ...]], ...] = (
    ("NC1HWC0", "NCHW", (8, 64, 128, 128, 16), (8, 1024, 128, 128)),
    ("NC1HWC0", "NHWC", (8, 64, 128, 128, 16), (8, 1024, 128, 128)),
    ("NDC1HWC0", "NCDHW", (2, 4, 64, 128, 128, 16), (2, 1024, 4, 128, 128)),
    ("FRACTAL_NZ", "ND", (512, 1024, 16, 16), (16384, 8192)),
    ("FRACTAL_Z", "NCHW", (64 * 16 * 16, 32, 16, 16), (512, 1024, 16, 16)),
    ("NHWC", "NCHW", (8, 128, 128, 1024), ()),
)


def best(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure on one thread, print the table, write results/layouts.md."""
    parser = argparse.ArgumentParser(prog="python -m bench.layouts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each case; the fastest counts")
    given = parser.parse_args(arguments)
    source_bytes = np.random.default_rng(0).integers(0, 1 << 16, 1 << 27, dtype=np.uint16).view(np.float16)
    gigabytes = source_bytes.nbytes / 1e9
    copy = gigabytes / best(source_bytes.copy, given.rounds)
    rows = []
    for source, target, device, original in CASES:
        x = source_bytes.reshape(device)

        def work(x: Any = x, source: str = source, target: str = target, own: Any = original) -> Any:
            return np.ascontiguousarray(convert(x, source, target, own))

        speed = gigabytes / best(work, given.rounds)
        rows.append([source, target, "x".join(map(str, device)), f"{speed:.1f}", f"{copy / speed:.1f}"])
    text = table(["from", "to", "fp16 on the device", "GB/s", "plain copy / this"], rows)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "layouts.md").write_text(
        f"# Layouts: 256 MB of fp16, one thread, copied out in full\n\n{text}\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
