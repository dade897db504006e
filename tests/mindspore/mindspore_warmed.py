"""Imported by what forks runs (tests/shared/forks.py): what each of them would else import and cache anew.

No operator: what MindSpore starts for its first one does not outlive a fork.
"""

from __future__ import annotations

from tempfile import mkdtemp

from mindspore import nn
from probe_mindspore import PrecisionDebugger

with PrecisionDebugger(dump_path=mkdtemp(), level="mix") as debugger:
    debugger.start(nn.ReLU())
    debugger.stop()
