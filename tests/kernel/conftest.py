"""Make the helpers beside the tests importable, and those that run MindSpore in forks; stand in for an NPU."""

from collections.abc import Iterator
from typing import Any

import pytest
from importable import make_importable

make_importable(__file__, "mindspore")


@pytest.fixture
def npu() -> Iterator[Any]:
    """What ``torch_npu.npu`` is in the test."""
    from recorded_npu import Npu, installed

    with installed(Npu()) as found:
        yield found
