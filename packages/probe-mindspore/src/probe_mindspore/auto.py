"""Dump the steps of this run by the line ``import probe_mindspore.auto`` alone, with ``PROBE_CONFIG=probe.yaml`` set.

The same is done by ``probe run --config probe.yaml train.py``, where even that line is not needed.
"""

from functools import partial

from probe_runtime.auto import named_by_job, search

from .debugger import PrecisionDebugger
from .loop.scene import MindSporeScene
from .loop.taps import watched

begin = partial(search, PrecisionDebugger, MindSporeScene, watched)

if (_file := named_by_job()) is not None:
    begin(_file)
