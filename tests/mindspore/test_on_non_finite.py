"""The contract of `on_non_finite`, and what only MindSpore has: scalers, and graphs."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from contract_on_non_finite import *  # noqa: F403
from mindspore import Tensor, amp, nn, ops
from mindspore_dumping import collected, opened
from probe_format.errors import NonFiniteError

pytestmark = pytest.mark.usefixtures("pynative")


def test_an_overflow_that_a_scaler_skips_triggers_nothing(tmp_path: Path) -> None:
    net = nn.SequentialCell(nn.Dense(2, 2))
    scaler = amp.DynamicLossScaler(1e38, 2, 1)
    x = Tensor(np.full((3, 2), 100, np.float32))
    grad = ms.value_and_grad(lambda x: scaler.scale(net(x).sum()), None, net.trainable_params())
    with collected(tmp_path, net, level="mix", on_non_finite="raise"):
        _, grads = grad(x)
        finite = amp.all_finite(scaler.unscale(grads))
    assert not bool(finite)


class Root(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        return ops.sqrt(x)


def test_a_graph_tells_it_at_stop(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.SequentialCell(nn.LeakyReLU(), Root(), nn.ReLU())
    caught = []
    with opened(tmp_path, level="L0", on_non_finite="raise") as debugger:
        debugger.start(net)
        net(Tensor(np.full((2, 2), -1, np.float32)))
        try:
            debugger.stop()
            debugger.step()
        except NonFiniteError as error:
            caught.append(error.record)
    assert len(caught) == 1 and "Root" in caught[0]
