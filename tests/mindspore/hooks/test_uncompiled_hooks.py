"""Hooks that are off while a graph is compiled: what is left when all of them are off."""

from __future__ import annotations

from functools import partial

import pytest
from mindspore_hooks import held_compilations
from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks

pytestmark = pytest.mark.once


def test_nothing_stays_when_the_last_hook_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    held = held_compilations(monkeypatch)
    hooks = UncompiledHooks()
    removed: list[int] = []
    off = [hooks.add(partial(autograd.Handle, partial(removed.append, i))) for i in range(3)]
    assert len(held) == 1
    for each in (off[1], off[0], off[0], off[2]):
        assert each is not None and held
        each()
    assert removed == [1, 0, 2]
    assert not held


def test_a_tensor_without_gradient_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at once, nor when a hook that was put on after it is off."""
    held = held_compilations(monkeypatch)
    hooks = UncompiledHooks()
    assert hooks.add(lambda: None) is None
    assert not held
    off = hooks.add(partial(autograd.Handle, lambda: None))
    assert off is not None and held
    off()
    assert not held
