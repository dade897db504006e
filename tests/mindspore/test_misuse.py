"""Every misuse gets one clear message; the run goes on, and what was dumped before is as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_misuse import *  # noqa: F403  the tests that both frameworks have
from messages import told
from mindspore import Tensor, nn, ops
from mindspore_dumping import capture, opened, records, write_config
from probe_format.errors import ConfigError, ProbeError, UsageError
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


@pytest.mark.parametrize(
    "model", ["model", [], [nn.ReLU(), 3], ops.ReLU()], ids=["str", "empty", "mixed", "op"]
)
def test_a_model_that_is_none(model: Any, tmp_path: Path) -> None:
    with opened(tmp_path, level="L0") as debugger:
        with pytest.raises(UsageError, match=r"mindspore\.nn\.Cell"):
            debugger.start(model)
        net = nn.SequentialCell(nn.Dense(3, 3))
        debugger.start(net)  # the right one is taken after that
        net(X)
        debugger.stop()
        debugger.step()
    assert "Cell.0.Dense.forward.0" in records(tmp_path / "dump")


def test_class_calls_without_an_instance() -> None:
    with pytest.raises(UsageError, match=r"PrecisionDebugger\("):
        PrecisionDebugger.start()


def test_ranks_in_a_single_process(tmp_path: Path) -> None:
    with told("rank"):
        data = capture(tmp_path / "0", lambda: ops.gelu(X), level="L1", rank=[0])
    assert list(data) == ["Functional.gelu.0.forward"]
    with told("rank", "7", "msrun"), opened(tmp_path / "7", level="L1", rank=[7]) as debugger:
        debugger.start()
        ops.gelu(X)
        debugger.stop()
        debugger.step()
    assert not list((tmp_path / "7" / "dump").rglob("dump.json"))


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


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}


KILLED = """
import os, sys
import mindspore as ms
from mindspore import nn
from probe_mindspore import PrecisionDebugger
net = nn.SequentialCell(nn.Dense(3, 3), nn.ReLU())
d = PrecisionDebugger(sys.argv[1])
d.start(net)
net(ms.ops.ones((2, 3)))
os.kill(os.getpid(), 9)
"""


def test_a_killed_run_is_readable_and_not_overwritten(tmp_path: Path) -> None:
    import probe_format

    config = write_config(tmp_path, level="mix")
    done = subprocess.run([sys.executable, "-c", KILLED, str(config)], env=environment())
    assert done.returncode == -signal.SIGKILL
    names = [r.name for step in probe_format.open(tmp_path / "dump").steps for r in step.ranks[0].records]
    assert "Cell.0.Dense.forward.0" in names and "Cell.1.ReLU.forward.0" in names
    with pytest.raises(ProbeError, match="already holds a dump"):
        PrecisionDebugger(str(config))
