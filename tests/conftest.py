"""Make the helpers in tests/shared importable from every folder, let pytest explain a failed contract, time nothing."""

import sys
from pathlib import Path

import pytest

_SHARED = Path(__file__).parent / "shared"
if str(_SHARED) not in sys.path:
    sys.path.append(str(_SHARED))

pytest.register_assert_rewrite(*(path.stem for path in _SHARED.glob("contract_*.py")))  # they hold tests

import untimed  # noqa: E402, F401  before any test is read, as each takes the profile of that moment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with slow tests first, so that at the end no worker waits for another that has such a file."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
