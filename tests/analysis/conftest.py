"""Make the helpers beside the tests, and those of tests/torch, importable."""

from importable import make_importable

make_importable(__file__, "torch")
