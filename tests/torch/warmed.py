"""Imported by what forks runs (tests/shared/forks.py): what each of them would else import and cache anew."""

from __future__ import annotations

import importlib
from contextlib import suppress
from tempfile import mkdtemp

from probe_torch import PrecisionDebugger

for name in ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel"):
    with suppress(ImportError):  # torch 2.6 has not all of them
        importlib.import_module(name)
with PrecisionDebugger(dump_path=mkdtemp(), level="L1") as debugger:
    debugger.start()
    debugger.stop()
