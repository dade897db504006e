"""Put folders of helpers on the import path: pytest's importlib mode adds none."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["make_importable"]


def make_importable(conftest: str, *others: str) -> None:
    """Make the helpers in the folder of a conftest.py importable.

    conftest: its ``__file__``. others: names of test folders whose helpers are importable as well.
    """
    here = Path(conftest).parent
    for folder in (here, *(here.parent / name for name in others)):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
