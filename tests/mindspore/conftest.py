"""Make the helpers beside the tests importable; leave all out where MindSpore is not.

MindSpore wants its own numpy, so it has environments of its own: `mindspore` and `mindspore27` in hatch.toml,
which test:all runs. They check that it is there, so nothing is left out by mistake.
"""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest
from importable import make_importable

os.environ.setdefault("GLOG_v", "3")  # errors only: its warnings hide what a failed test says

make_importable(__file__, "interop")

collect_ignore_glob = ["*.py"] if importlib.util.find_spec("mindspore") is None else []

if not collect_ignore_glob:
    import mindspore

    @pytest.fixture
    def pynative() -> Iterator[None]:
        """PyNative, whatever the test before has set, and whatever this one sets."""
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        yield
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)

    @pytest.fixture
    def graph_mode(pynative: None) -> None:
        """GRAPH_MODE, and PyNative again afterwards."""
        mindspore.set_context(mode=mindspore.GRAPH_MODE)

    @pytest.fixture(autouse=True)
    def settled() -> Iterator[None]:
        """Leave no error of an operator to the next test: MindSpore may raise one again at whatever runs then.

        Its worker hands the error to the tensor first and to the next operator a moment later, so the test that
        expected the error has often ended in between.
        """
        yield
        with contextlib.suppress(RuntimeError):
            mindspore.runtime.synchronize()

    @pytest.fixture(scope="session")
    def framework() -> Any:
        """What the contracts of tests/shared need of MindSpore."""
        from mindspore_dumping import FRAMEWORK

        return FRAMEWORK

    # One thread for operators: with more they now and then wait seconds for each other on a busy machine.
    mindspore.set_context(runtime_num_threads=1)
