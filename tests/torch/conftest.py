"""Make the helpers beside the tests importable; name the framework of the contracts."""

from typing import Any

import pytest
from importable import make_importable

make_importable(__file__)


@pytest.fixture(scope="session")
def framework() -> Any:
    from dumping import FRAMEWORK

    return FRAMEWORK
