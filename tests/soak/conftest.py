"""Make the helpers beside the tests importable, those that damage dumps, and those that make files of kernels."""

from importable import make_importable

make_importable(__file__, "analysis", "kernel")
