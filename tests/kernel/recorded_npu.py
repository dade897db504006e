"""``torch_npu.npu`` as far as a dump needs it, recorded: no machine with an NPU is needed, and none is claimed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

ORDER = ["synchronize", "init_dump", "set_dump", "synchronize", "synchronize", "finalize_dump", "synchronize"]


class Npu(SimpleNamespace):
    """calls: what was called, in order; configs: the files given to set_dump; ran: operators while dumping."""

    def __init__(self, **failing: Exception) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.configs: list[tuple[Path, Any]] = []
        self.ran: list[str] = []
        self.failing = failing
        self.on = False

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.failing:
            raise self.failing[name]

    def synchronize(self) -> None:
        self._called("synchronize")

    def init_dump(self) -> None:
        self._called("init_dump")

    def set_dump(self, path: str) -> None:
        self._called("set_dump")
        self.configs.append((Path(path), json.loads(Path(path).read_text())))
        self.on = True

    def finalize_dump(self) -> None:
        self.on = False
        self._called("finalize_dump")


class Watcher(TorchDispatchMode):
    """Notes each operator that runs while the dumper is on."""

    def __init__(self, npu: Npu) -> None:
        super().__init__()
        self.npu = npu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.npu.on:
            self.npu.ran.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def installed(npu: Any) -> Iterator[Any]:
    """``import torch_npu`` finds it in the block."""
    before = sys.modules.get("torch_npu")
    sys.modules["torch_npu"] = SimpleNamespace(npu=npu)  # type: ignore[assignment]
    try:
        yield npu
    finally:
        if before is None:
            del sys.modules["torch_npu"]
        else:
            sys.modules["torch_npu"] = before
