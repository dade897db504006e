"""What runs in a training process while Probe watches it, and is the same for every framework."""

__version__ = "0.1.0"

__all__ = ["__version__"]
