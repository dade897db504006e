"""The session of a debugger of MindSpore: its parts put together."""

from __future__ import annotations

import logging

from probe_format.collector import Target
from probe_format.config import Config
from probe_format.preflight import preflight
from probe_format.session import Framework, Session, warn

from . import flavour as flavours
from .ranks import current_rank, world_size
from .step import Steps

__all__ = ["open_session"]

_WANTS_MODEL = "level {level} records Cells, so it needs the model: start(model=...). Level L1 works without."


def open_session(config: Config, tool: str) -> Session:
    """A session with this configuration. Raises ConfigError with every problem, before anything runs."""
    for text in preflight(config, current_rank(), world_size()):
        warn(text)
    target = Target()
    patches = None
    steps = Steps(config, tool, flavours.detect(), patches, target)
    log = logging.getLogger("probe_mindspore")
    return Session(config, None, Framework(log, current_rank, steps.open, _WANTS_MODEL), patches)
