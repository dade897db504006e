"""Control kernel-level (L2) dumps and read what they leave."""

__version__ = "0.1.0"
__all__ = ["__version__"]
