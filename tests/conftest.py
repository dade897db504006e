"""Make the helpers in tests/shared importable from every folder, let pytest explain a failed contract, time nothing."""

import sys
from pathlib import Path

import pytest

_SHARED = Path(__file__).parent / "shared"
if str(_SHARED) not in sys.path:
    sys.path.append(str(_SHARED))

pytest.register_assert_rewrite(*(path.stem for path in _SHARED.glob("contract_*.py")))  # they hold tests

import untimed  # noqa: E402, F401  before any test is read, as each takes the profile of that moment
