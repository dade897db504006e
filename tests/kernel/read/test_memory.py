"""Commands that look at tensors larger than the memory that they may have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ELEMENTS = 96 << 20  # 192 MiB of float16, which would be 768 MiB as float64
#: Bytes of memory of its own (not of mapped files) that a command may have; about 100 MiB are Python's and numpy's.
LIMIT = 260 << 20
RUN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
from probe_format.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "rank_0" / "net" / "0" / "0"
    folder.mkdir(parents=True)
    values = np.lib.format.open_memmap(
        folder / "Add.Add-op1.0.0.1700000000000000.output.0.DefaultFormat.float16.npy",
        mode="w+",
        dtype=np.float16,
        shape=(ELEMENTS,),
    )
    values[:] = 1.0
    values[5], values[6] = -3.0, np.inf
    values.flush()
    return folder.parents[3]


@pytest.mark.parametrize("command", [["show"], ["statistics"], ["check"], ["export"]], ids=lambda c: c[0])
def test_a_large_tensor_needs_no_memory_of_its_size(command: list[str], dump: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "out")] if command[0] in ("statistics", "export") else []
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(limit=LIMIT), "kernel", *command, str(dump), *out],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MemoryError" not in done.stdout + done.stderr
    if command[0] == "statistics":
        text = next(p for p in [dump, tmp_path] for p in p.rglob("statistic.csv")).read_text()
        assert "-3" in text
