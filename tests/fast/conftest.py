"""Make the helpers beside the tests importable; leave the tests out where no library can be built."""

import shutil

import pytest
from importable import make_importable
from probe_fast import WAY

make_importable(__file__)


@pytest.fixture(autouse=True)
def there() -> None:
    """Where there is a compiler there is the library; elsewhere nothing of it can be tested."""
    if not shutil.which("cc"):
        pytest.skip("there is no compiler (cc), so probe-fast has no library here")
    assert WAY, "the library is not built here: python packages/probe-fast/build_library.py"
