"""Make the helpers beside the tests importable; name the framework of the contracts."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from importable import make_importable

make_importable(__file__)


@pytest.fixture(scope="session")
def framework() -> Any:
    from dumping import FRAMEWORK

    return FRAMEWORK


@pytest.fixture
def one_process() -> Iterator[None]:
    """Set up a process group of one. Ask for it before a patch looks: torch sets names of its own, some for good."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    time.sleep(0.1)  # torch 2.6 destroys it with the GIL held, which gloo's thread needs to let go of tensors
    dist.destroy_process_group()
