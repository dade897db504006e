"""seed_all: the same numbers again, dropout off wherever it is, and everything put back."""

import os
import random
import sys
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops
from mindspore.common.initializer import Normal, initializer
from mindspore.nn.layer import basic
from mindspore.ops import dropout as early_dropout
from probe_format.errors import UsageError
from probe_mindspore.seed import seed_all

X = Tensor(np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32))


def _draw():
    return [
        random.random(),
        float(np.random.rand()),
        initializer(Normal(), (3,), ms.float32).init_data().asnumpy().tolist(),
        ops.dropout(X, 0.5).asnumpy().tolist(),
        ops.standard_normal((3,)).asnumpy().tolist(),
    ]


def test_the_same_numbers_again():
    with seed_all(7):
        first = _draw()
    with seed_all(7):
        again = _draw()
    with seed_all(8):
        other = _draw()
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_everything_is_put_back(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    monkeypatch.delenv("HCCL_DETERMINISTIC", raising=False)
    state = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        ms.get_seed(),
        ms.get_rng_state().asnumpy().tolist(),
    )
    methods = {cls: (cls.__init__, "__call__" in vars(cls)) for cls in (ops.Dropout, ops.Dropout2D)}
    construct = nn.Dropout.construct
    seeded = seed_all(3, mode=True, rm_dropout=True)
    assert ms.get_seed() == 3 and ms.get_context("deterministic") == "ON"
    assert os.environ["PYTHONHASHSEED"] == "3" and nn.Dropout.construct is not construct
    random.random(), np.random.rand(), ops.dropout(X, 0.5)
    seeded.undo()
    seeded.undo()
    after = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        ms.get_seed(),
        ms.get_rng_state().asnumpy().tolist(),
    )
    assert after == state and ms.get_context("deterministic") == "OFF"
    assert os.environ["PYTHONHASHSEED"] == "5" and "HCCL_DETERMINISTIC" not in os.environ
    assert nn.Dropout.construct is construct
    assert methods == {cls: (cls.__init__, "__call__" in vars(cls)) for cls in methods}


class Raw(nn.Cell):
    def __init__(self):
        super().__init__()
        self.drop = ops.Dropout(0.5)

    def construct(self, x):
        return self.drop(x)[0]


def _cell(cls, *args, **kwargs):
    cell = cls(*args, **kwargs)
    cell.set_train()
    return cell


EARLIER = {
    "nn.Dropout": (_cell(nn.Dropout, p=0.5), X),
    "nn.Dropout1d": (_cell(nn.Dropout1d, p=0.5), X[0]),
    "nn.Dropout2d": (_cell(nn.Dropout2d, p=0.5), X),
    "nn.Dropout3d": (_cell(nn.Dropout3d, p=0.5), X[None]),
    "ops.dropout": (early_dropout, X),
    "ops.dropout2d": (ops.dropout2d, X),
    "a Primitive in a Cell": (_cell(Raw), X),
}
MINT = {
    "mint.nn.Dropout": (_cell(mint.nn.Dropout, p=0.5), X),
    "mint.nn.functional.dropout": (mint.nn.functional.dropout, X),
}


@pytest.mark.parametrize("name", EARLIER)
def test_dropout_is_off_for_what_was_made_before(name):
    drop, x = EARLIER[name]
    with seed_all(rm_dropout=True):
        np.testing.assert_array_equal(drop(x).asnumpy(), x.asnumpy())
        grad = ms.grad(lambda x: drop(x).sum())(x)
        np.testing.assert_array_equal(grad.asnumpy(), np.ones(x.shape, np.float32))
    dropped = [(drop(x).asnumpy() == 0).any() for _ in range(8)]
    assert any(dropped), "dropout stayed off"


@pytest.mark.parametrize("kind", [ops.Dropout, ops.Dropout2D, ops.Dropout3D])
def test_a_primitive_made_meanwhile_drops_afterwards(kind):
    """MindSpore keeps Primitives by their arguments: one that stayed off would be off for everybody."""
    x = Tensor(np.ones((1, 64, 2, 2, 2) if kind is ops.Dropout3D else (1, 64, 2, 2), np.float32))
    with seed_all(rm_dropout=True):
        with seed_all(rm_dropout=True):
            drop = kind(0.25)
        np.testing.assert_array_equal(drop(x)[0].asnumpy(), x.asnumpy())
    assert drop.keep_prob == 0.25
    assert (drop(x)[0].asnumpy() == 0).any()


def test_the_generator_of_a_torch_on_mindspore_is_seeded_and_put_back(monkeypatch):
    """The seam, with a stand-in for mindtorch."""
    state = ["before"]
    torch = SimpleNamespace(
        Tensor=Tensor,
        get_rng_state=lambda: list(state),
        set_rng_state=lambda saved: state.__setitem__(slice(None), saved),
        manual_seed=lambda seed: state.__setitem__(slice(None), [seed]),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with seed_all(7):
        assert state == [7]
    assert state == ["before"]


@pytest.mark.parametrize("name", MINT)
def test_dropout_of_mint_is_off(name):
    """Its kernel is the accelerator's: on a CPU it runs only where it has nothing to do."""
    drop, x = MINT[name]
    with seed_all(rm_dropout=True):
        np.testing.assert_array_equal(drop(x).asnumpy(), x.asnumpy())
    with pytest.raises(RuntimeError):
        drop(x).asnumpy()


def test_dropout_is_off_in_what_is_compiled_later():
    def by_function(x):
        return ops.dropout(x, 0.5)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(p=0.5)

        def construct(self, x):
            return self.drop(x) + 0

    net = _cell(Net)
    with seed_all(rm_dropout=True):
        for run in (ms.jit(by_function), ms.jit(net), ms.jit(_cell(Raw))):
            np.testing.assert_array_equal(run(X).asnumpy(), X.asnumpy())


def test_two_may_overlap():
    one = seed_all(rm_dropout=True)
    two = seed_all(rm_dropout=True)
    one.undo()
    np.testing.assert_array_equal(ops.dropout(X, 0.5).asnumpy(), X.asnumpy())
    two.undo()
    assert (ops.dropout(X, 0.5).asnumpy() == 0).any()
    assert basic.Dropout.construct.__module__.startswith("mindspore")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"seed": -1}, "from 0 to"),
        ({"seed": "7"}, "must be an int"),
        ({"seed": True}, "must be an int"),
        ({"mode": "yes"}, "mode must be True or False"),
        ({"rm_dropout": 1}, "rm_dropout"),
    ],
)
def test_wrong_arguments_change_nothing(arguments, what):
    before = random.getstate(), ms.get_seed()
    with pytest.raises(UsageError, match=what):
        seed_all(**arguments)
    assert (random.getstate(), ms.get_seed()) == before
