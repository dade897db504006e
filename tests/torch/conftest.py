"""Make the helpers beside the tests importable (importlib mode adds no folder); name the framework of the contracts."""

import sys
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "shared"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

pytest.register_assert_rewrite("contract_kill", "contract_misuse", "contract_patches")  # they hold tests


@pytest.fixture(scope="session")
def framework() -> Any:
    from dumping import FRAMEWORK

    return FRAMEWORK
