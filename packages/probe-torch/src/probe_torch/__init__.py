"""See every number that a PyTorch step computed, without changing it."""

from typing import TYPE_CHECKING

from probe_format.on_demand import on_demand

__version__ = "0.1.0"

try:
    import torch as _torch
except ImportError as e:
    raise ImportError(
        "probe_torch needs PyTorch, which cannot be imported here. Install the build for your device (for example "
        "`pip install torch`; for a machine without a GPU, 5 GB less: `pip install torch --index-url "
        "https://download.pytorch.org/whl/cpu`), or let pip choose one: `pip install 'probe-torch[torch]'`. To read "
        f"dumps without PyTorch, use probe_format. ({e})"
    ) from e

# The lowest version that the tests run on (environment torch26), and pyproject.toml accepts.
if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 6):
    raise ImportError(
        f"probe_torch needs PyTorch 2.6 or newer; {_torch.__version__} is installed here, on which it is not tested. "
        "Install a newer build for your device (for example `pip install 'torch>=2.6'`). To read dumps with this "
        "one, or without any, use probe_format."
    )

from .debugger import PrecisionDebugger
from .perturb import perturb
from .seed import seed_all

# A training run does not plan: what `plan` needs is loaded when it is first asked for.
if TYPE_CHECKING:
    from .planning import plan
else:
    __getattr__, __dir__ = on_demand(__name__, {"plan": "probe_torch.planning"})

__all__ = ["PrecisionDebugger", "__version__", "perturb", "plan", "seed_all"]
