"""Llama-2-7B is planned where its weights would not fit (docs/plan.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLAN = """
import json, resource, sys, time
import torch
from bench.llama import LLAMA_7B, Llama
from probe_torch import plan

began = time.process_time()
with torch.device("meta"):
    model, ids = Llama(LLAMA_7B).to(torch.bfloat16), torch.zeros(1, 4097, dtype=torch.int64)
planned = plan(model, {"level": "mix", "task": "tensor", "dump_path": sys.argv[1]}, ids)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(json.dumps([planned.records, planned.bytes, planned.bytes_unshared, used, time.process_time() - began]))
"""


@pytest.mark.slow
def test_llama_2_7b_is_planned_in_little_memory(tmp_path: Path) -> None:
    """The weights alone are 13 GB; the plan needs what torch needs, which is below 4 GB."""
    done = subprocess.run(
        [sys.executable, "-c", PLAN, str(tmp_path / "dump")],
        cwd=ROOT, env={"PYTHONPATH": ":".join(["", *sys.path]), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records, shared, unshared, used, seconds = json.loads(done.stdout.splitlines()[-1])
    print(f"planned in {seconds:.0f} s of CPU time and {used / 1e9:.2f} GB")
    assert used < 4e9
    assert records > 32 * 2 * 7 and 1e11 < shared < unshared < 1e12
