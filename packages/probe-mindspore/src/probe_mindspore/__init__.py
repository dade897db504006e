"""See every number that a MindSpore step computed, without changing it."""

__version__ = "0.1.0"
__all__ = ["__version__"]
