"""Make clients.py and job.py importable."""

from importable import make_importable

make_importable(__file__)
