"""Make the helpers importable: pytest's importlib mode adds no folder. No saver outlives its test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "shared"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture(autouse=True)
def _no_saver_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from probe_save import current

    for name in (current.VARIABLE, "RANK", "RANK_ID"):
        monkeypatch.delenv(name, raising=False)
    yield
    if current._saver is not None:
        current._saver.close()
        current._saver = None
