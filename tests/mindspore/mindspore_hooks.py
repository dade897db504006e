"""What Probe has put on in MindSpore and not taken off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from probe_mindspore.hooks import uncompiled_hooks
from probe_runtime.patching import Held


def held_compilations(monkeypatch: pytest.MonkeyPatch) -> list[Held]:
    """Return the list of what hooks hold of MindSpore's compilations from now on; what is undone leaves it."""
    around, held = uncompiled_hooks.around_compilation, []

    def counted(region: Callable[[], Any]) -> Held:
        inner = around(region)
        held.append(inner)

        def undo() -> None:
            held.remove(inner)
            inner.undo()

        return Held(undo)

    monkeypatch.setattr(uncompiled_hooks, "around_compilation", counted)
    return held
