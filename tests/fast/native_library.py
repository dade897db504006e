"""The library under test: built beside its source, as an installation does it."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[2] / "packages" / "probe-fast" / "src" / "probe_fast" / "numbers.c"


LIBRARY = SOURCE.with_suffix(".so")


def module_at(place: Path) -> ModuleType:
    """The module in a file, which no package has."""
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: The hook of the build.
build = module_at(SOURCE.parents[2] / "build_library.py")


def every_way(place: Path = LIBRARY) -> Iterator[str]:
    """Compute with a library in every way that this processor has."""
    found = ctypes.CDLL(str(place))
    for number, name in enumerate(("plain", "AVX2", "AVX-512")):
        if found.probe_fast_use(number) == number:
            yield name
    found.probe_fast_use(found.probe_fast_best())
