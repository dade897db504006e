"""Watch a training process: the part of Probe that runs inside it and is the same for every framework."""

__version__ = "0.1.0"

__all__ = ["__version__"]
