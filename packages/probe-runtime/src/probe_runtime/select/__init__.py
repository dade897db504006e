"""Select what a configuration asks for: names, and parts of records."""

from .filters import NameFilter

__all__ = ["NameFilter"]
