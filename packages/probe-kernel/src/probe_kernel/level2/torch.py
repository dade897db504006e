"""Implement level L2 for the sessions of probe-torch: check the debugger's configuration, and have Ascend's dumper
dump the kernels of one API call in each step.
"""

from pathlib import Path
from typing import Any

from attrs import define
from probe_format.errors import Problem
from probe_format.names import ApiName
from probe_runtime.config import Config

from probe_kernel.ascend.acl import find_npu, write_acl
from probe_kernel.ascend.api_watch import ApiWatch, parse_api

from .mindspore import common_problems


def torch_problems(config: Config) -> list[Problem]:
    """Return every problem of this configuration at level L2 of PyTorch, but not whether torch_npu is installed."""
    found = common_problems(config)
    if len(config.list) != 1:
        what = f"has {len(config.list)} names; at level L2 one API call is dumped in each step."
        found.append(Problem("list", what, 'Write e.g. ["Functional.linear.0.backward"].'))
    elif isinstance(name := parse_api(config.list[0], "list[0]"), Problem):
        found.append(name)
    if not config.kind.files:
        what = f"is {config.task!r}; Ascend's dumper saves tensors."
        found.append(Problem("task", what, 'Write task "tensor".'))
    if config.data_mode & {"forward", "backward"}:
        what = "the name in list says forward or backward already."
        found.append(Problem("data_mode", what, 'Write ["all"], ["input"] or ["output"].'))
    return found


def torch_notes(config: Config) -> tuple[str, ...]:
    """Return what in this configuration has no effect at level L2 of PyTorch, in sentences."""
    given = {"device": config.device != "host", "file_format": config.file_format != "npy"}
    given["summary_mode"] = bool(config.statistic_category)
    what = "has no effect with PyTorch: it is for MindSpore's kernels."
    return tuple(f"{key}: {what}" for key in given if given[key])


@define(eq=False)
class TorchKernels:
    """Dump the kernels of one API call in each step. The session's patched functions call `api`.

    config: the configuration, in which `torch_problems` finds none.
    """

    config: Config
    watch: ApiWatch | None = None

    def start(self, step: int = 0) -> None:
        """Watch for the wanted call in this step, also after a stop()."""
        if self.watch is not None:
            self.watch.on = True
            return
        name = parse_api(self.config.list[0], "list[0]")
        assert isinstance(name, ApiName)  # torch_problems has checked it
        file = write_acl(Path(self.config.dump_path) / f"step{step}", self._mode())
        self.watch = ApiWatch(name, file, find_npu())

    def api(self, key: str, original: Any, args: Any, kwargs: Any, *, composite: bool = False) -> Any:
        """Run a patched function, and dump its kernels where this call is the wanted one."""
        if self.watch is None:
            return original(*args, **kwargs)
        return self.watch.api(key, original, args, kwargs, composite=composite)

    def stop(self) -> None:
        """Stop watching for the wanted call. A gradient that comes before step() is still dumped."""
        if self.watch is not None:
            self.watch.on = False

    def step(self) -> None:
        """End the step, and report the result for the wanted call."""
        watch, self.watch = self.watch, None
        if watch is not None:
            watch.close()

    def close(self) -> None:
        self.step()

    def _mode(self) -> str:
        both = "all" in self.config.data_mode or {"input", "output"} <= self.config.data_mode
        return "all" if both else "input" if "input" in self.config.data_mode else "output"
