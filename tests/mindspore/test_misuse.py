"""Every misuse gets one clear message; the run goes on, and what was dumped before is as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from contract_misuse import *  # noqa: F403  the tests that both frameworks have
from mindspore import Tensor, nn, ops
from mindspore_dumping import capture, write_config
from probe_format.errors import ConfigError, UsageError
from probe_mindspore import PrecisionDebugger, ProbeStep

X = Tensor(np.ones((2, 3), np.float32))


def still_trains() -> None:
    """The user's MindSpore is whole: functions are the originals and a step gives gradients."""
    assert not hasattr(ops.gelu, "__wrapped__") and not hasattr(nn.Cell.__call__, "__wrapped__")
    model = nn.Dense(3, 2)
    grads = ms.grad(lambda x: model(x).sum(), None, model.trainable_params())(X)
    assert len(grads) == 2


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    yield
    still_trains()


def test_class_calls_without_an_instance() -> None:
    with pytest.raises(UsageError, match=r"PrecisionDebugger\("):
        PrecisionDebugger.start()


def test_compiled_regions_are_torchs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"compiled: 'eager' is for torch\.compile"):
        PrecisionDebugger(dump_path=str(tmp_path / "d"), level="L1", compiled="eager")
    assert list(capture(tmp_path, lambda: ops.gelu(X), level="L1", compiled="not_seen"))


def test_an_optimizer_is_called_with_its_gradients(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"optimizer_grad: is for optimizers that read \.grad"):
        PrecisionDebugger(dump_path=str(tmp_path / "d"), level="mix", optimizer_grad=True)


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_dump_of_one_of_the_two_modes_counts_as_used(mode: str, tmp_path: Path) -> None:
    earlier = tmp_path / "dump" / mode / "step0" / "rank"
    earlier.mkdir(parents=True)
    (earlier / "dump.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds a dump"):
        PrecisionDebugger(str(write_config(tmp_path, level="L1")))


def test_a_callback_without_a_debugger() -> None:
    with pytest.raises(UsageError, match="PrecisionDebugger"):
        ProbeStep("config.json")  # type: ignore[arg-type]


def test_kernels_without_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "probe_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "probe_kernel", None)
    with pytest.raises(ConfigError, match="pip install probe-kernel"):
        PrecisionDebugger(str(write_config(tmp_path, level="L2")))
