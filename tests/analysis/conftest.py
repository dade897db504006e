"""Make the helpers beside the tests importable; time no example of a property."""

import untimed  # noqa: F401
from importable import make_importable

make_importable(__file__)
