"""Control kernel-level (L2) dumps and read what they leave."""

from __future__ import annotations

__version__ = "0.1.0"

from . import mindspore, torch
from .acl import AclDump, AclModel, acl_settings
from .backends import BACKENDS
from .controlfile import ControlFile, load_settings
from .description import KernelDump
from .read import Dump, open
from .settings import settings

__all__ = [
    "BACKENDS",
    "AclDump",
    "AclModel",
    "ControlFile",
    "Dump",
    "KernelDump",
    "__version__",
    "acl_settings",
    "load_settings",
    "mindspore",
    "open",
    "settings",
    "torch",
]
