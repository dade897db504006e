"""Make saving.py importable: pytest's importlib mode adds no folder. No saver outlives its test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.append(_HERE)


@pytest.fixture(autouse=True)
def _no_saver_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from probe_save import current

    for name in (current.VARIABLE, "RANK", "RANK_ID"):
        monkeypatch.delenv(name, raising=False)
    yield
    if current._saver is not None:
        current._saver.close()
        current._saver = None
