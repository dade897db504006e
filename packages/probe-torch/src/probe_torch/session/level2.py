"""Open level L2, at which probe-kernel has Ascend dump the kernels of one API call in each step."""

import contextlib
from collections.abc import Callable
from typing import Any

from attrs import define, field
from probe_format.write import Coverage
from probe_runtime.config import Config
from probe_runtime.notice import notice
from probe_runtime.session import KernelSession, kernel_package, preflight

from probe_torch.patching.apis import apis_of
from probe_torch.patching.patches import Patches
from probe_torch.patching.regions import step_regions
from probe_torch.ranks import current_rank, world_size


def open_kernels(config: Config, model: Any = None) -> KernelSession:
    """Return a session at level L2.

    Raises ConfigError with every problem, before anything runs, when the configuration can't work.
    """
    package = kernel_package()
    preflight(config, current_rank(), world_size(), package.torch_problems(config))
    for text in package.torch_notes(config):
        notice(f"Probe: {text}")
    package.find_npu()  # here, so that a missing device ends the run now and not after hours
    return KernelSession(config, KernelCalls(config, package.TorchKernels(config)), current_rank, model)


@define(eq=False)
class KernelCalls:
    """Pass calls of torch's functions to `probe_kernel.level2.TorchKernels`, which waits for the one it dumps.

    Calls are numbered as at level L1, so a name from such a dump is the same call here.

    config: the debugger's configuration.
    kernels: the TorchKernels.
    patches: the wrappers of torch's functions.
    """

    config: Config
    kernels: Any
    patches: Patches = field(init=False)
    _installed: contextlib.ExitStack = field(factory=contextlib.ExitStack)

    def __attrs_post_init__(self) -> None:
        self.patches = Patches(apis_of(self.config), self._tap)

    def _tap(self, label: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return self.kernels.api(label.name, original, args, kwargs, composite=label.composite)

    def prepare(self, step: int) -> None:
        """Do nothing: the dumper is switched on for the one call."""

    def start(self, step: int) -> None:
        self.kernels.start(step)
        with contextlib.ExitStack() as stack:
            stack.enter_context(step_regions(_ignore, _ignore, Coverage()))
            stack.enter_context(self.patches)
            self._installed = stack.pop_all()

    def stop(self) -> None:
        """Stop watching; a gradient that comes before step() still belongs to the call."""
        self._installed.close()
        self.kernels.stop()

    def step(self) -> None:
        self.kernels.step()

    def close(self) -> None:
        self._installed.close()
        self.kernels.close()


def _ignore(node: str) -> None:
    """Do nothing: regions have no meaning here."""
