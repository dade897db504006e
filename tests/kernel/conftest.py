"""Make the helpers beside the tests importable."""

from importable import make_importable

make_importable(__file__, "mindspore")
