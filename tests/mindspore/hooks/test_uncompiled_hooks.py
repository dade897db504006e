"""Hooks that are off while a graph is compiled: what is left when all of them are off."""

from __future__ import annotations

from functools import partial

import pytest
from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks
from probe_mindspore.patching import compile_hook

pytestmark = pytest.mark.once


def test_nothing_stays_when_the_last_hook_is_off() -> None:
    before = len(compile_hook._active)
    hooks = UncompiledHooks()
    removed: list[int] = []
    off = [hooks.add(partial(autograd.Handle, partial(removed.append, i))) for i in range(3)]
    assert len(compile_hook._active) == before + 1
    for each in (off[1], off[0], off[0], off[2]):
        assert each is not None
        each()
    assert removed == [1, 0, 2]
    assert len(compile_hook._active) == before and not hooks._handles


def test_a_tensor_without_gradient_is_not_kept() -> None:
    before = len(compile_hook._active)
    hooks = UncompiledHooks()
    assert hooks.add(lambda: None) is None
    assert len(compile_hook._active) == before and not hooks._handles
