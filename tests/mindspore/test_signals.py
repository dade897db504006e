"""What a signal's handler or a trace raises (a request's time-out) is the run's, wherever in Probe it came."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore_dumping import opened, records, report
from probe_mindspore.hooks import autograd
from probe_mindspore.tensors.leaf import TensorLeaf
from signalled import PLACES as SHARED
from signalled import WAYS, Late, rings_in

pytestmark = pytest.mark.usefixtures("pynative")

PLACES = SHARED | {"a tensor": (TensorLeaf, "tensor")}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("place", PLACES)
def test_a_time_out_ends_the_request_and_the_next_is_recorded_whole(
    place: str, level: str, way: str, tmp_path: Path
) -> None:
    model = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 1))
    train = ms.value_and_grad(lambda x: model(x).sum(), None, model.trainable_params())
    x = Tensor(np.ones((2, 4), np.float32))
    train(x)
    with opened(tmp_path, level=level) as debugger:
        with rings_in(*PLACES[place], way) as times, pytest.raises(Late), debugger.one_step(model):
            train(x)
        autograd.abandon()  # any error within what is differentiated leaves MindSpore's recording open
        for _ in range(2):
            with debugger.one_step(model):
                train(x)
    assert times == [1]
    assert [report(tmp_path / "dump", step)["faults"] for step in range(3)] == [[], [], []]
    assert list(records(tmp_path / "dump", 1)) == list(records(tmp_path / "dump", 2)) != []
