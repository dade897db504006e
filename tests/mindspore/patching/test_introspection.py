"""A good guest: what copies, pickles, saves or imports does not notice the patches, and is not recorded."""

from __future__ import annotations

import copy
import importlib
import multiprocessing.reduction
import pickle
import sys
from collections.abc import Iterator
from copy import deepcopy as early_deepcopy
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn, ops, train
from mindspore import save_checkpoint as early_save
from mindspore.mint.nn import functional
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.introspection import IntrospectionGuards
from probe_mindspore.patching.patches import Patches
from probe_runtime.patching.originals import original_of
from tapping import Recorder

RELU, GELU, SILU = (vars(ops)["relu"],), (vars(ops)["gelu"],), (vars(functional)["silu"],)
OWNERS = (copy, pickle, ms, train, amp, multiprocessing.reduction, multiprocessing.reduction.ForkingPickler)
X = Tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(tap: Recorder) -> Iterator[Patches]:
    made = Patches(load_apis(views=True), tap)
    before, path = [dict(vars(owner)) for owner in OWNERS], list(sys.meta_path)
    with IntrospectionGuards(made):
        yield made
        made.undo()
    assert sys.meta_path == path
    for owner, names in zip(OWNERS, before, strict=True):
        assert [name for name, value in names.items() if vars(owner).get(name) is not value] == []


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 3, weight_init="normal", activation="relu")
        self.act = ops.relu
        self.acts = [ops.gelu]

    def construct(self, x: Tensor) -> Tensor:
        return self.acts[0](self.act(self.dense(x)))


@pytest.fixture(params=["given", "not given"])
def model(request: pytest.FixtureRequest, patches: Patches, tap: Recorder) -> Iterator[Net]:
    made = Net()
    patches.apply(*[made] if request.param == "given" else [])
    yield made
    patches.undo()
    assert holds_originals(made)


def holds_originals(model: Net) -> bool:
    return model.act is RELU[0] and model.acts[0] is GELU[0]


@pytest.mark.parametrize("how", ["deepcopy", "early deepcopy", "deepcopy with a memo", "copy"])
def test_copies(how: str, model: Net, tap: Recorder) -> None:
    made = {
        "deepcopy": lambda: copy.deepcopy(model),
        "early deepcopy": lambda: early_deepcopy(model),
        "deepcopy with a memo": lambda: copy.deepcopy(model, {}),
        "copy": lambda: copy.copy(model),
    }[how]()
    assert tap.take() == []
    assert original_of(made.act) is RELU[0]
    if how != "copy":  # of a Cell, MindSpore's own copy is a shallow one
        assert np.array_equal(made(X).asnumpy(), model(X).asnumpy())


def test_a_copy_outlives_the_dump(patches: Patches) -> None:
    model = Net()
    patches.apply(model)
    made = copy.deepcopy(model)
    patches.undo()
    assert holds_originals(made)
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


def test_pickled_tensors(patches: Patches, tap: Recorder) -> None:
    with patches:
        loaded = pickle.loads(pickle.dumps(X))
    assert np.array_equal(loaded.asnumpy(), X.asnumpy())
    assert tap.calls == []


def test_a_module_imported_meanwhile(patches: Patches, tap: Recorder, tmp_path: Path) -> None:
    (tmp_path / "late_user_file.py").write_text(
        "from mindspore import ops\nfrom mindspore.ops import relu\n"
        "FOUND = relu\nTABLE = {'relu': relu}\ndef run(x):\n    return relu(x)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with patches:
            late = importlib.import_module("late_user_file")
            late.run(X), late.TABLE["relu"](X)
        assert late.FOUND is late.relu is late.TABLE["relu"] is RELU[0]
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("late_user_file", None)
    assert tap.calls == ["Functional.relu"] * 2


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
