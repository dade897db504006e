"""See every number that a MindSpore step computed, without changing it."""

from typing import TYPE_CHECKING

from probe_format.on_demand import on_demand

__version__ = "0.1.0"

try:
    import mindspore as _mindspore  # noqa: F401
except ImportError as e:
    raise ImportError(
        "probe_mindspore needs MindSpore, which cannot be imported here. Install the build for your device (for "
        "example `pip install mindspore`), or let pip choose one: `pip install 'probe-mindspore[mindspore]'`. To "
        f"read dumps without MindSpore, use probe_format. ({e})"
    ) from e

from probe_mindspore.graph.save import (  # after the debugger, whose session room has a module called step too
    save,
    save_grad,
    step,
)

from .callbacks import MsprobeInitStep, MsprobeStep, ProbeInitStep, ProbeStep
from .debugger import PrecisionDebugger
from .perturb import perturb
from .seed import seed_all

# A training run does not plan: what `plan` needs is loaded when it is first asked for.
if TYPE_CHECKING:
    from .planning import plan
else:
    __getattr__, __dir__ = on_demand(__name__, {"plan": "probe_mindspore.planning"})

__all__ = [
    "MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "ProbeInitStep", "ProbeStep", "__version__",
    "perturb", "plan", "save", "save_grad", "seed_all", "step",
]  # fmt: skip
