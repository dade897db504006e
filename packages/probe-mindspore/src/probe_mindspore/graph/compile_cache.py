"""Detect whether MindSpore's compile cache on disk is on, and switch it off for a while.

MindSpore numbers what it stores and loads by the order in which a process compiles, and compares nothing else of a
graph: with one compilation more or less, every later one gets another graph's file (2.7.0 and 2.10.0). So what Probe
compiles stays out of the cache, and the user's own graphs are compiled when they would be without Probe.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore
from mindspore._c_expression import MSContext, ms_ctx_param

_VARIABLE = "MS_COMPILER_CACHE_ENABLE"


def _is_on() -> bool:
    setting = mindspore.get_context("enable_compile_cache")
    return setting is True or setting == 1 or (not setting and os.environ.get(_VARIABLE) == "1")


@contextmanager
def off() -> Iterator[None]:
    """Switch the cache off while open, without MindSpore logging it, if it is on."""
    if not _is_on():
        yield
        return
    before = os.environ.pop(_VARIABLE, None)
    context: Any = MSContext.get_instance()
    setting = context.get_param(ms_ctx_param.enable_compile_cache)
    context.set_param(ms_ctx_param.enable_compile_cache, 0)
    try:
        yield
    finally:
        context.set_param(ms_ctx_param.enable_compile_cache, int(setting))
        if before is not None:
            os.environ[_VARIABLE] = before
