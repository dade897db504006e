"""The contract of `reload`."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_reload import *  # noqa: F403
from contract_reload import LEVELS, levels_under_probe_run
from framework import Framework

pytestmark = pytest.mark.once

SCRIPT = """
import mindspore as ms
from mindspore import nn, ops
net = nn.SequentialCell(nn.Dense(2, 2))
optimizer = nn.SGD(net.trainable_params(), 0.1)
grad = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)
for text in FILES:
    _, gradients = grad(ops.ones((1, 2)))
    write(text)
    optimizer(gradients)
"""


def test_under_probe_run(framework: Framework, tmp_path: Path) -> None:
    assert levels_under_probe_run(framework, tmp_path, SCRIPT) == LEVELS
