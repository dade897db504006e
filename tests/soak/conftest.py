"""Make the helpers beside the tests importable, and those that damage dumps."""

from importable import make_importable

make_importable(__file__, "analysis")
