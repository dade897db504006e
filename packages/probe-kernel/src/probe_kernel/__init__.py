"""Control kernel-level (L2) dumps and read the files that they write."""

__version__ = "0.1.0"

from probe_kernel.ascend.acl import AclDump, AclModel, acl_settings
from probe_kernel.control.backends import BACKENDS
from probe_kernel.control.control_file import ControlFile, load_settings, settings
from probe_kernel.control.description import KernelDump
from probe_kernel.read.dump import Dump, open

from . import mindspore, torch

__all__ = [
    "BACKENDS", "AclDump", "AclModel", "ControlFile", "Dump", "KernelDump", "__version__", "acl_settings",
    "load_settings", "mindspore", "open", "settings", "torch",
]  # fmt: skip
