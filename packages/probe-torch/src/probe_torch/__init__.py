"""See every number that a PyTorch step computed, without changing it."""

__version__ = "0.1.0"
__all__ = ["__version__"]
