"""Save any variable, and its gradient, with one line."""

__version__ = "0.1.0"
__all__ = ["__version__"]
