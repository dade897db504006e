"""Switch Ascend's own dumper on and off through torch_npu, and wait for the device around each switch."""

import contextlib
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen
from probe_format.errors import UsageError
from probe_format.safe_files import make_folder, replace_file

from .acl import AclDump, acl_settings

_NEEDED = ("init_dump", "set_dump", "finalize_dump", "synchronize")


@frozen
class NpuDumper:
    """Switch the dumper of ``torch_npu.npu``. npu: that module, or an object with its four functions."""

    npu: Any

    @contextlib.contextmanager
    def dumping(self, config: Path) -> Iterator[None]:
        """Dump every operator that runs in the block, as the ACL file ``config`` says."""
        self.npu.synchronize()  # wait for earlier operators, which do not belong to the call
        self.npu.init_dump()
        try:
            self.npu.set_dump(str(config))
            self.npu.synchronize()
            yield
        finally:
            try:
                self.npu.synchronize()  # wait for the operators that the call queued
            finally:
                self.npu.finalize_dump()
                self.npu.synchronize()

    @contextlib.contextmanager
    def same_random(self) -> Iterator[None]:
        """Restore the state of the random numbers at the end of the block, so that they are drawn again after it."""
        get, put = getattr(self.npu, "get_rng_state", None), getattr(self.npu, "set_rng_state", None)
        state = get() if get is not None and put is not None else None
        torch = importlib.import_module("torch")
        with torch.random.fork_rng(devices=[]):
            try:
                yield
            finally:
                if state is not None and put is not None:
                    put(state)


def find_npu() -> Any:
    """Return ``torch_npu.npu``. Raises UsageError when it is not installed, or too old to dump."""
    try:
        npu = importlib.import_module("torch_npu").npu
    except ImportError as e:
        raise UsageError(
            "Kernels of PyTorch are dumped by Ascend's own dumper, and torch_npu is not installed. On a machine with "
            "an NPU install it (pip install torch_npu); elsewhere use level L0, L1 or mix."
        ) from e
    if missing := [name for name in _NEEDED if not hasattr(npu, name)]:
        what = f"it has no npu.{missing[0]}. Install a newer one."
        raise UsageError(f"This torch_npu cannot dump kernels: {what}")
    return npu


def write_acl(folder: Path, mode: str) -> Path:
    """Write ``kernel_config_{pid}.json`` for single operators into ``folder``, creating it; return the file's path.

    mode: all, input or output.
    Raises ConfigError when an option is wrong, OSError when the file cannot be written.
    """
    document = acl_settings(AclDump(path=str(folder), mode=mode))  # type: ignore[arg-type]
    make_folder(folder)
    path = folder / f"kernel_config_{os.getpid()}.json"
    replace_file(path, f"{json.dumps(document, indent=4)}\n".encode())
    return path
