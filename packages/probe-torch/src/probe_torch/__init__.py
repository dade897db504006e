"""See every number that a PyTorch step computed, without changing it."""

__version__ = "0.1.0"

try:
    import torch as _torch  # noqa: F401
except ImportError as e:
    raise ImportError(
        "probe_torch needs PyTorch, which is not installed here. Install the build for your device (for example "
        "`pip install torch`), or let pip choose one: `pip install 'probe-torch[torch]'`. To read dumps without "
        "PyTorch, use probe_format."
    ) from e

from .debugger import PrecisionDebugger
from .seed import seed_all

__all__ = ["PrecisionDebugger", "__version__", "seed_all"]
