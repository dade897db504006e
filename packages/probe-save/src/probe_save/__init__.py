"""Save any variable, and its gradient, with one line."""

__version__ = "0.1.0"

from .current import configure, save, step
from .saver import Saver

__all__ = ["Saver", "__version__", "configure", "save", "step"]
