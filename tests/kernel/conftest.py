"""Make the helpers beside the tests importable, and those that run MindSpore in forks."""

from importable import make_importable

make_importable(__file__, "mindspore")
