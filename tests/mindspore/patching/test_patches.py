"""Patches: every call goes through the tap while applied, nothing changes, and nothing is left after."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mindspore as ms
import mindspore.ops.functional as old_style
import numpy as np
import pytest
from contract_patches import *  # noqa: F403  the tests that both frameworks have
from contract_patches import Surface
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.mint.nn import functional as early_module
from probe_format.errors import UsageError
from probe_mindspore.patching.apis import load_apis
from probe_mindspore.patching.patches import Patches
from probe_runtime.patching.lookup import go_down, resolve_owner
from tapping import Recorder, identities

EVERYTHING = load_apis(views=True)
ABSENT = object()
# Out of reach of the search for names bound early.
RELU, GELU, SILU = (vars(ops)["relu"],), (vars(ops)["gelu"],), (vars(early_module)["silu"],)
OWNERS = [ops, ops.functional, ops.function, mint, mint.nn.functional, mint.distributed]


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def patched_names() -> dict[tuple[str, str], Any]:
    """What stands at every listed name; ABSENT where Tensor inherits it. Primitives stay where they are."""
    found = {}
    for api in EVERYTHING:
        owner, last = go_down(resolve_owner(api.owners[0]), api.name)
        if owner is not None and not isinstance(getattr(owner, last, None), ops.Primitive):
            found[api.owners[0], api.name] = vars(owner).get(last, ABSENT)
    return found


def find(path: str, name: str) -> Any:
    owner, last = go_down(resolve_owner(path), name)
    return getattr(owner, last, None)


USERS_FILE = """
from mindspore import ops, mint
ACTIVATIONS = {"relu": ops.relu}
STACK = [mint.nn.functional.silu]
def block(x, act=ops.silu, *, last=ops.sigmoid):
    return last(act(x))
class Layer:
    act = staticmethod(ops.gelu)
    norm = ops.tanh
    def __call__(self, x, act=ops.selu):
        return act(self.act(x))
def late():
    return ops.mish
"""
USERS_CALLS = [
    "Functional.relu", "MintFunctional.silu", "Functional.silu", "Functional.sigmoid", "Functional.gelu",
    "Functional.selu", "Functional.tanh",
]  # fmt: skip
CALLERS = {
    "mindspore/common/parameter.py": False,
    "mindspore/dataset/transforms/transforms.py": False,
    "mindspore/train/serialization.py": False,
    "mindspore/graph/api.py": False,
    "mindspore/nn/layer/basic.py": True,
    "mindspore/nn/loss/loss.py": True,
    "mindspore/nn/wrap/cell_wrapper.py": True,
    "mindspore/mint/nn/layer/activation.py": True,
}


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.act = ops.gelu
        self.acts = [early_module.silu, ops.tanh]
        self.more = [ops.relu, {"not": "here"}]
        self.table = {"relu": ops.relu}
        self.dense = nn.Dense(2, 2, activation=ops.Sigmoid())

    def construct(self, x: Tensor) -> Tensor:
        x = self.table["relu"](self.act(self.dense(x)))
        for act in self.acts:
            x = act(x)
        return self.more[0](x)


@pytest.fixture
def surface() -> Surface:
    return Surface(
        names=patched_names, find=find, listed=1300, signed=700, functions=ops, prefix="Functional",
        ones=lambda *shape: Tensor(np.ones(shape, np.float32)),
        two_calls=lambda x: (ops.rank(x), x + 1), called=("Functional.rank", "Tensor.__add__"),
        activations=ops, another=lambda: Patches(EVERYTHING, Recorder()), none=lambda tap: Patches((), tap),
        net=Net, net_input=lambda: tensor(1, 2),
        net_calls=["Functional.gelu", "Functional.relu", "MintFunctional.silu", "Functional.tanh"],
        users_file=USERS_FILE, users_calls=USERS_CALLS, callers=CALLERS,
    )  # fmt: skip


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(tap: Recorder) -> Iterator[Patches]:
    made = Patches(EVERYTHING, tap)
    with made:  # MindSpore imports some of its own modules late
        pass
    kinds, namespaces, names = (
        [dict(vars(kind)) for kind in (Tensor, Parameter, ops.Primitive, ops.MatMul, nn.Cell, nn.Optimizer)],
        [dict(vars(owner)) for owner in OWNERS],
        patched_names(),
    )
    yield made
    while made.applied:
        made.undo()
    # Every test ends with this: nothing is left, in any way the test leaves the patches.
    after = [
        dict(vars(kind)) for kind in (Tensor, Parameter, ops.Primitive, ops.MatMul, nn.Cell, nn.Optimizer)
    ]
    for before, now in zip(kinds, after, strict=True):
        assert before.keys() == now.keys()
        changed = [name for name, value in before.items() if now[name] is not value]
        assert set(changed) <= {"total_instance_count"}  # MindSpore counts its Cells
    for owner, before in zip(OWNERS, namespaces, strict=True):
        new = vars(owner).keys() - before.keys()
        assert all(isinstance(vars(owner)[name], ModuleType) for name in new)  # imported meanwhile
        assert [name for name, value in before.items() if vars(owner)[name] is not value] == []
    left = patched_names()
    assert [name for name, value in names.items() if left[name] is not value] == []


def test_calls_of_every_kind(patches: Patches, tap: Recorder) -> None:
    x = tensor(2, 3)
    weight = Parameter(tensor(3, 2), name="weight")
    with patches:
        -x, x + 1, 1 - x, x / 2, 2 / x, x @ weight, x == x, abs(x), weight * 2, weight.sum()
        ops.relu(x), mint.tanh(x), mint.nn.functional.silu(x), x.astype(ms.float16), Tensor.add(x, x)
        mint.linalg.norm, ops.cross_entropy(x, Tensor([0, 1], ms.int32)), bool(x.sum() > 0)
        x[0] = 0
        x += 1
    wanted = """
        Tensor.__neg__ Tensor.__add__ Tensor.__rsub__ Tensor.__truediv__ Tensor.__rtruediv__ Tensor.__matmul__
        Tensor.__eq__ Tensor.__abs__ Tensor.__mul__ Tensor.sum Functional.relu Mint.tanh MintFunctional.silu
        Tensor.astype Tensor.add Functional.cross_entropy Tensor.__gt__ Tensor.__bool__ Tensor.__setitem__
        Tensor.__iadd__
    """
    assert set(wanted.split()) - set(tap.take()) == set()
    ops.relu(x)
    assert tap.calls == []


def test_only_the_outermost_call(patches: Patches, tap: Recorder) -> None:
    with patches:
        ops.cross_entropy(tensor(2, 3), Tensor([0, 1], ms.int32))
        nn.GELU()(tensor(2))
    assert tap.calls == ["Functional.cross_entropy", "Functional.gelu"]


def test_what_msprobe_forgets_hides_nothing(patches: Patches, tap: Recorder) -> None:
    with patches:
        tensor(2).astype(ms.float16)  # not in msprobe's list; what it calls is
    assert tap.calls == ["Tensor.to", "Tensor.astype"]


def test_dropout_stays_dropout(patches: Patches) -> None:
    x = Tensor(np.ones(1000, np.float32))
    with patches:
        dropped = ops.dropout(x, p=0.5).asnumpy()
    assert 300 < (dropped == 0).sum() < 700


def test_in_place_functions_stay_in_place(patches: Patches, tap: Recorder) -> None:
    x, other = tensor(3), tensor(3, seed=1)
    weight = Parameter(tensor(3), name="weight")
    with patches:
        x.copy_(other)
        x[1] = 7
        ops.assign(weight, other)
        ops.assign_add(weight, other)
        before = tensor(3)
        before.add_(1)  # not in place on CPU, with Probe or without
    want = other.asnumpy().copy()
    assert np.array_equal(weight.asnumpy(), want + want)
    want[1] = 7
    assert np.array_equal(x.asnumpy(), want)
    plain = tensor(3)
    plain.add_(1)
    assert np.array_equal(before.asnumpy(), plain.asnumpy())
    wanted = [
        "Tensor.copy_",
        "Tensor.__setitem__",
        "Functional.assign",
        "Functional.assign_add",
        "Tensor.add_",
    ]
    wanted = [name for name in wanted if f"mindspore.{name}" not in patches.missing]  # copy_ on 2.7
    assert [name for name in tap.calls if name in wanted] == wanted


def test_the_old_names_of_a_users_file(patches: Patches, tap: Recorder) -> None:
    """`from mindspore.ops import functional as F`: the user's calls count, MindSpore's own do not."""
    plain = old_style.relu
    with patches:
        old_style.relu(tensor(2))
        assert ops.function.sigmoid(tensor(2)).shape == (2,)
    assert tap.take() == ["Functional.relu", "Functional.sigmoid"]
    assert old_style.relu is plain
    of_mindspore: dict[str, Any] = {"F": old_style, "ops": ops}
    path = Path(ms.__file__).with_name("nn") / "layer" / "basic.py"
    exec(compile("def call(x): return F.relu(x), ops.relu(x)", str(path), "exec"), of_mindspore)
    with patches:
        of_mindspore["call"](tensor(2))
    assert tap.calls == ["Functional.relu"]


def test_pickled_by_name(patches: Patches) -> None:
    functions = [ops.relu, mint.tanh, mint.nn.functional.silu, old_style.gelu, ops.cross_entropy]
    with patches:
        data = pickle.dumps([ops.relu, mint.tanh, mint.nn.functional.silu, old_style.gelu, ops.cross_entropy])
    assert identities(pickle.loads(data)) == identities(functions)


def test_equality_hash_and_operators(patches: Patches) -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "radd"

    def facts() -> list[Any]:
        found: list[Any] = [hash(x) == id(x), {x: 1}[x], bool((x == y).all()), x != "text"]
        for act in (lambda: x + object(), lambda: object() @ x, lambda: x + Other(), lambda: x == None):  # noqa: E711
            try:
                found.append(str(act()))
            except Exception as error:
                found.append(type(error))
        return found

    x, y = tensor(2), tensor(2)
    before = facts()
    with patches:
        assert facts() == before


MINDTORCH_LIST = """
functional: [silu]
tensor: [__add__]
torch: [exp, nothing_like_it]
torch_npu: [npu_swiglu]
views: {}
risk_level: {focus_drops: [], core_keeps: []}
"""


def test_the_names_of_a_torch_on_mindspore(
    tap: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam, with a stand-in for mindtorch: its functions go by torch's names, MindSpore's are left alone."""

    class Module:
        def __init__(self) -> None:
            self.act = functional.silu

        def modules(self) -> Iterator[Any]:
            yield self

    torch: Any = ModuleType("torch")
    nn_, functional = ModuleType("torch.nn"), ModuleType("torch.nn.functional")
    torch.Tensor, torch.exp, torch.nn, nn_.functional = Tensor, mint.exp, nn_, functional  # type: ignore[attr-defined]
    silu = functional.silu = lambda x: early_module.silu(x)  # type: ignore[attr-defined]
    for name, module in {"torch": torch, "torch.nn": nn_, "torch.nn.functional": functional}.items():
        monkeypatch.setitem(sys.modules, name, module)
    listing = tmp_path / "apis.yaml"
    listing.write_text(MINDTORCH_LIST)
    patches, model, exp = Patches(load_apis(mindtorch=listing), tap), Module(), vars(mint)["exp"]
    patches.apply(model)
    torch.exp(tensor(2)), functional.silu(tensor(2)), model.act(tensor(2)), tensor(2) + 1  # type: ignore[attr-defined]
    assert mint.exp is exp
    patches.undo()
    assert tap.calls == ["Torch.exp", "Functional.silu", "Functional.silu", "Tensor.__add__"]
    assert torch.exp is exp and model.act is silu
    assert patches.missing["torch.nothing_like_it"] == "this torch has no such function"
    assert patches.missing["torch_npu"].startswith("not imported")


def test_a_torch_that_holds_nothing_is_patched_behind_it(
    tap: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mindtorch's `torch` fetches its names from the package mindtorch, whose layers know nothing of `torch`."""

    class Fetching(ModuleType):
        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules[self.__loader__.target_name], name)  # type: ignore[union-attr]

    source: Any = ModuleType("mindtorch")
    source.nn, functional = ModuleType("mindtorch.nn"), ModuleType("mindtorch.nn.functional")
    source.Tensor, source.exp, source.mine = Tensor, mint.exp, lambda x: x
    source.nn.functional, functional.silu = functional, lambda x: early_module.silu(x)  # type: ignore[attr-defined]
    names = {"": source, ".nn": source.nn, ".nn.functional": functional}
    for name, module in names.items():
        fetching = Fetching(f"torch{name}")
        fetching.__loader__ = SimpleNamespace(target_name=f"mindtorch{name}")  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, f"mindtorch{name}", module)
        monkeypatch.setitem(sys.modules, f"torch{name}", fetching)
    torch: Any = sys.modules["torch"]
    listing = tmp_path / "apis.yaml"
    listing.write_text(MINDTORCH_LIST)
    modules = [source, functional, torch, sys.modules["torch.nn.functional"]]
    before = [dict(vars(module)) for module in modules]

    def layer(x: Tensor) -> Any:
        return functional.silu(x)

    patches = Patches(load_apis(mindtorch=listing), tap)
    patches.add(torch, "mine")
    with patches:
        torch.exp(tensor(2)), torch.nn.functional.silu(tensor(2)), layer(tensor(2)), source.mine(tensor(2))
    assert tap.calls == ["Torch.exp", "Functional.silu", "Functional.silu", "torch.mine"]
    assert "torch.nothing_like_it" in patches.missing
    assert [identities(vars(module)) for module in modules] == [*map(identities, before)]
    patches.remove(torch, "mine")
    with pytest.raises(UsageError, match="not registered"):
        patches.remove(torch, "mine")
