"""What people use without a tool: a plain script of hooks, and torch's DebugMode. Each has start, stop and step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch


class Hooks:
    """max, min, mean and norm of every input, output and gradient of every module, read at once and kept as JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._rows, self._handles = folder, [], []  # type: ignore[var-annotated]

    def start(self, model: Any) -> None:
        for name, module in model.named_modules():
            self._handles.append(module.register_forward_hook(self._forward(name)))
            self._handles.append(module.register_full_backward_hook(self._backward(name)))

    def _forward(self, name: str) -> Any:
        return lambda module, inputs, output: self._take(name, "forward", (*inputs, output))

    def _backward(self, name: str) -> Any:
        return lambda module, inputs, outputs: self._take(name, "backward", (*inputs, *outputs))

    def _take(self, name: str, way: str, values: tuple[Any, ...]) -> None:
        tensors = [v.detach().float() for v in values if isinstance(v, torch.Tensor)]
        numbers = [
            [t.max().item(), t.min().item(), t.mean().item(), t.norm().item()] for t in tensors if t.numel()
        ]
        self._rows.append([name, way, numbers])

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "hooks.json").write_text(json.dumps(self._rows))
        self._handles, self._rows = [], []

    def step(self) -> None:
        """Do nothing."""


class Debug:
    """torch.utils._debug_mode.DebugMode with a hash of every tensor; its text is written."""

    def __init__(self, folder: Path) -> None:
        from torch.utils._debug_mode import DebugMode

        self._folder, self._kind = folder, DebugMode

    def start(self, model: Any) -> None:
        self._mode, self._hashes = self._kind(), self._kind.log_tensor_hashes()
        self._mode.__enter__()
        self._hashes.__enter__()

    def stop(self) -> None:
        self._hashes.__exit__(None, None, None)
        self._mode.__exit__(None, None, None)
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "debug.txt").write_text(self._mode.debug_string())

    def step(self) -> None:
        """Do nothing."""
