"""An error of a kernel reaches the run, though Probe's look at a tensor was the first to get it.

MindSpore computes behind Python. It raises the error of a kernel that failed once, at whatever waits for it next;
after that the tensor can be read, and holds what the memory held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from documents import strict
from mindspore import Tensor, nn, ops
from mindspore_dumping import collected, opened, records, report
from probe_mindspore.hooks import autograd

pytestmark = pytest.mark.usefixtures("pynative")
OUTSIDE = "'input_indices' should be in the range"


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    """Leave no unfinished recording: MindSpore keeps one open after any error within a net whose gradient is taken."""
    yield
    autograd.abandon()


def out_of_range(x: Tensor) -> Tensor:
    """Fail behind Python: there is no row 99."""
    return ops.gather(x, Tensor([99], ms.int32), 0)


class Used(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        return out_of_range(x)


class Unused(nn.Cell):
    def construct(self, x: Tensor) -> Tensor:
        out_of_range(x)
        return x * 2.0


class Compiled(nn.Cell):
    @ms.jit
    def construct(self, x: Tensor) -> Tensor:
        return ops.gather(x, ops.cast(x[0, 0] * 0 + 99, ms.int32), 0)


class Net(nn.Cell):
    def __init__(self, middle: nn.Cell) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Dense(4, 4), middle, nn.Dense(4, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x))).sum()


def run(net: Net, gradients: bool) -> list[Any]:
    x = Tensor(np.ones((3, 4), np.float32))
    if not gradients:
        return [net(x).asnumpy()]
    loss, grads = ms.value_and_grad(net, None, net.trainable_params())(x)
    return [t.asnumpy() for t in (loss, *grads)]


@pytest.mark.parametrize("level", [*(pytest.param(x, marks=pytest.mark.once) for x in ("L0", "L1")), "mix"])
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("middle", [Used, Unused, Compiled])
def test_the_run_gets_the_error(middle: type[nn.Cell], gradients: bool, level: str, tmp_path: Path) -> None:
    net = Net(middle())
    with collected(tmp_path, net, level=level, step=[0]), pytest.raises(RuntimeError, match=OUTSIDE):
        run(net, gradients)
    ms.runtime.synchronize()
    reports = [strict(path) for path in tmp_path.rglob("report.json")]
    assert reports and not any(one.get("faults") for one in reports)
    run(Net(nn.ReLU()), True)  # and nothing of it is left over


def test_the_record_says_where_it_came(tmp_path: Path) -> None:
    net = Net(Used())
    with (
        collected(tmp_path, net, level="mix", step=[0]),
        pytest.raises(RuntimeError, match=OUTSIDE) as caught,
    ):
        run(net, False)
    assert "looked at a tensor" in str(caught.value.__cause__)
    found = records(tmp_path / "dump")
    (out,) = found["Functional.gather.0.forward"]["output"]
    assert OUTSIDE in out["unsupported"] and out["Max"] is None
    assert OUTSIDE in found["Cell.middle.Used.forward.0"]["raised"]
    assert "Cell.last.Dense.forward.0" not in found


def test_a_kernel_that_mindspore_does_not_have(tmp_path: Path) -> None:
    """Its result raises at each look; that is no fault of Probe's."""
    net = Net(nn.ReLU())
    with collected(tmp_path, net, level="L1", step=[0]):

        def forward(x: Tensor) -> Tensor:
            ms.mint.norm(x)
            return net(x)

        with pytest.raises(RuntimeError, match="unregistered"):
            ms.value_and_grad(forward, 0)(Tensor(np.ones((3, 4), np.float32)))[0].asnumpy()
    assert not report(tmp_path / "dump").get("faults")


class Odd(Tensor):
    """A tensor that Probe cannot read, and MindSpore can."""

    @property
    def _shape(self) -> Any:
        raise ValueError("no shape")


def test_what_only_probe_fails_at_is_not_handed_on(tmp_path: Path) -> None:
    with collected(tmp_path, level="L1", step=[0]):
        out = ops.relu(Odd(np.ones(4, np.float32)))
    assert out.asnumpy().tolist() == [1.0] * 4
    (given,) = records(tmp_path / "dump")["Functional.relu.0.forward"]["input_args"]
    assert given["unsupported"] == "cannot be read (ValueError: no shape)"


def test_saving_hands_it_on(tmp_path: Path) -> None:
    x = Tensor(np.ones((3, 4), np.float32))
    with opened(tmp_path, task="statistics", level="debug") as debugger:
        with pytest.raises(RuntimeError, match=OUTSIDE):
            debugger.save(out_of_range(x), "after")
        debugger.step()
    data = strict(next((tmp_path / "dump").rglob("debug.json")))["data"]
    assert "after.0.debug" in data


def test_a_write_that_mindspore_2_7_takes_ill_is_none(tmp_path: Path) -> None:
    """There a hook makes a plain tensor one that requires a gradient, so a write to it is an error: not the run's."""
    cache, weight = Tensor(np.ones(4, np.float32)), Tensor(np.full(4, 2.0, np.float32))

    def forward(weight: Tensor) -> Tensor:
        cache.copy_(cache * 3.0)
        return (cache * weight).sum()

    with collected(tmp_path, level="L1", step=[0]):
        for _ in range(2):
            assert ms.grad(forward)(weight).asnumpy().tolist() == cache.asnumpy().tolist()
    assert cache.asnumpy().tolist() == [9.0] * 4
