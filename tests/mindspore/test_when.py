"""The contract of `when` and `then`; and the loss scaler of this framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_keep import steps_of
from contract_planted import *  # noqa: F403
from contract_when import *  # noqa: F403
from mindspore import Tensor, amp, nn
from mindspore_launching import run_ranks
from probe_mindspore import PrecisionDebugger

pytestmark = pytest.mark.once


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_an_overflow_that_a_scaler_skips_triggers_nothing(
    tmp_path: Path, level: str, recwarn: pytest.WarningsRecorder
) -> None:
    net = nn.SequentialCell(nn.Dense(8, 8), nn.Dense(8, 1)).to_float(ms.float16)
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    scaler = amp.DynamicLossScaler(2**24, 2, 1000)
    rng = np.random.default_rng(0)
    forward = ms.value_and_grad(
        lambda x: scaler.scale(net(x).astype(ms.float32).square().mean()), None, optimizer.parameters
    )
    skipped = []
    when = ["non_finite", "norm(parameters_grad) > 1e30"]
    with PrecisionDebugger(dump_path=tmp_path, level=level, keep={"last": 2}, when=when) as debugger:
        for _ in range(20):
            debugger.start(net)
            _, gradients = forward(Tensor(rng.normal(size=(3, 8)).astype(np.float32)))
            gradients = scaler.unscale(gradients)
            is_finite = amp.all_finite(gradients)
            if is_finite:
                optimizer(gradients)
            scaler.adjust(is_finite)
            skipped.append(not bool(is_finite))
            debugger.stop()
            debugger.step()
    assert {True, False} == set(skipped)
    assert steps_of(tmp_path) == [18, 19]
    assert not [each for each in recwarn if "meets" in str(each.message)]


@pytest.fixture
def planted() -> Any:
    return lambda request: run_ranks("mindspore_planted.py", json.dumps(request))


@ms.jit
def compiled(scaler: amp.DynamicLossScaler, is_finite: Tensor) -> Tensor:
    return scaler.adjust(is_finite)


def test_a_scaler_is_as_before_afterwards(tmp_path: Path) -> None:
    adjust = amp.DynamicLossScaler.adjust
    with PrecisionDebugger(dump_path=tmp_path, level="L0", when=["non_finite"]):
        assert amp.DynamicLossScaler.adjust is not adjust
        assert compiled(amp.DynamicLossScaler(8, 2, 1), Tensor(True))
    assert amp.DynamicLossScaler.adjust is adjust
