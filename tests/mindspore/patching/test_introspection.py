"""A good guest: what copies, pickles, saves or imports does not notice the patches, and is not recorded."""

from __future__ import annotations

import copy
import multiprocessing.reduction
import pickle
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from contract_introspection import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_introspection import Guest
from mindspore import Tensor, amp, nn, ops, train
from mindspore import save_checkpoint as early_save
from mindspore.mint.nn import functional
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.patches import Patches
from probe_runtime.patching.places import original_of
from tapping import Recorder

RELU, GELU, SILU = (vars(ops)["relu"],), (vars(ops)["gelu"],), (vars(functional)["silu"],)
OWNERS = (copy, pickle, ms, train, amp, multiprocessing.reduction, multiprocessing.reduction.ForkingPickler)
X = Tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 3, weight_init="normal", activation="relu")
        self.act = ops.relu
        self.acts = [ops.gelu]

    def construct(self, x: Tensor) -> Tensor:
        return self.acts[0](self.act(self.dense(x)))


@pytest.fixture
def guest() -> Guest:
    return Guest(
        patches=lambda tap: Patches(load_apis(views=True), tap), owners=OWNERS,
        functions=ops, net=Net, weight=lambda model: model.dense.weight, x=X,
        shallow=False,  # of a Cell, MindSpore's own copy is one
        same=lambda a, b: np.array_equal(a.asnumpy(), b.asnumpy()), copies=(lambda model: copy.deepcopy(model),),
        relu=RELU, gelu=GELU,
    )  # fmt: skip


def test_a_copy_has_the_primitives_of_its_model(patches: Patches) -> None:
    model = Net()
    patches.apply(model)
    made = copy.deepcopy(model)
    patches.undo()
    assert type(made.dense.matmul) is type(model.dense.matmul) is ops.MatMul


def test_checkpoints(model: Net, tap: Recorder, tmp_path: Path) -> None:
    for number, save in enumerate((ms.save_checkpoint, train.save_checkpoint, early_save)):
        path = str(tmp_path / f"{number}.ckpt")
        save(model, path)
        loaded = ms.load_checkpoint(path)
        assert np.array_equal(loaded["dense.weight"].asnumpy(), model.dense.weight.asnumpy())
        other = Net()
        assert ms.load_param_into_net(other, loaded) == ([], [])
    assert tap.take() == []


def test_a_checkpoint_is_the_same_file(patches: Patches, tmp_path: Path) -> None:
    model = Net()
    ms.save_checkpoint(model, str(tmp_path / "plain.ckpt"))
    with patches:
        ms.save_checkpoint(model, str(tmp_path / "dumped.ckpt"))
    assert (tmp_path / "plain.ckpt").read_bytes() == (tmp_path / "dumped.ckpt").read_bytes()


def test_pickled_functions(patches: Patches, tap: Recorder) -> None:
    plain = pickle.dumps([ops.relu, functional.silu])
    with patches:
        wrappers = [ops.relu, functional.silu]
        for data in (pickle.dumps(wrappers), pickle.dumps([RELU[0], SILU[0]])):
            loaded = pickle.loads(data)
            assert loaded[0] is RELU[0] and loaded[1] is SILU[0]
        assert bytes(multiprocessing.reduction.ForkingPickler.dumps(wrappers))
    loaded = pickle.loads(plain)
    assert loaded[0] is RELU[0]
    assert tap.calls == []


def test_mixed_precision_is_the_same(patches: Patches) -> None:
    def kinds(net: nn.Cell) -> list[str]:
        return [type(cell).__name__ for _, cell in net.cells_and_names()]

    plain = kinds(amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(4, 3), nn.ReLU()), "O2"))
    with patches:
        during = kinds(amp.auto_mixed_precision(nn.SequentialCell(nn.Dense(4, 3), nn.ReLU()), "O2"))
    assert during == plain


def test_cells_made_meanwhile(patches: Patches) -> None:
    with patches:
        layer = nn.TransformerEncoderLayer(4, 2, 8, activation=ops.gelu)
        net = Net()
        made = copy.copy(net)
    assert made.act is RELU[0] or original_of(made.act) is RELU[0]
    # One that was bound while it stood there, and that nobody gave to start(), does what the original does.
    assert np.array_equal(layer.activation(X).asnumpy(), ops.gelu(X).asnumpy())
