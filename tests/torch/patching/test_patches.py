"""Patches: every call goes through the tap while applied, and nothing is left after."""

from __future__ import annotations

import functools
import inspect
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo  # replaces torch.manual_seed when imported; not ours to notice
import torch.distributed as dist
import torch.nn.functional as F
from contract_patches import *  # noqa: F403  the tests that both frameworks have
from contract_patches import Surface, check_whose_call_it_is
from probe_format.errors import UsageError
from probe_runtime.patching import resolve_owner
from probe_torch.patching.apis import Apis, load_apis
from probe_torch.patching.patches import Patches
from tapping import Recorder, identities
from torch import nn

# Out of reach of the search for names bound early.
RELU, GELU = (vars(torch)["relu"], "kept"), (vars(F)["gelu"], "kept")
EVERYTHING = load_apis(views=True)
OWNERS = [
    torch,
    F,
    torch._VF,
    dist,
    dist.distributed_c10d,
    torch.linalg,
    torch.fft,
    torch.special,
    torch.sparse,
]
ABSENT = object()


def patched_names() -> dict[tuple[str, str], Any]:
    """What stands at every listed name; ABSENT where torch.Tensor inherits it."""
    found = {}
    for api in EVERYTHING:
        for path in api.owners:
            *way, last = api.name.split(".")
            owner: Any = resolve_owner(path)
            for part in way:
                owner = getattr(owner, part, None)
            if owner is not None:
                found[path, api.name] = vars(owner).get(last, ABSENT)
    return found


def find(path: str, name: str) -> Any:
    function: Any = resolve_owner(path)
    for part in name.split("."):
        function = getattr(function, part, None)
    return function


USERS_FILE = """
import torch
import torch.nn.functional as F
ACTIVATIONS = {"relu": F.relu}
STACK = [torch.tanh]
def block(x, act=F.silu, *, last=torch.sigmoid):
    return last(act(x))
class Layer:
    act = staticmethod(F.gelu)
    norm = F.normalize
    def __call__(self, x, act=torch.exp):
        return act(self.act(x))
def late():
    return F.mish
"""
USERS_CALLS = [
    "Functional.relu", "Torch.tanh", "Functional.silu", "Torch.sigmoid", "Functional.gelu", "Torch.exp",
    "Functional.normalize",
]  # fmt: skip
CALLERS = {
    "torch/_inductor/graph.py": False,
    "torch/_meta_registrations.py": False,
    "torch/autograd/__init__.py": False,
    "torch/nn/modules/linear.py": True,
    "torch/fx/interpreter.py": True,
    "elsewhere/_inductor/model.py": True,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = F.gelu
        self.acts = [torch.tanh, F.silu]
        self.table = {"relu": F.relu}
        self.inner = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table["relu"](self.act(x))
        for act in self.acts:
            x = act(x)
        return self.inner(x)


@pytest.fixture
def surface() -> Surface:
    return Surface(
        names=patched_names, find=find, listed=1400, signed=100, functions=torch, prefix="Torch", ones=torch.ones,
        two_calls=lambda x: (F.relu(x), x + 1), called=("Functional.relu", "Tensor.__add__"),
        activations=F, another=lambda: Patches(EVERYTHING, Recorder()), none=lambda tap: Patches(Apis(()), tap),
        net=Net, net_input=lambda: torch.ones(1, 2, 4),
        net_calls=["Functional.gelu", "Functional.relu", "Torch.tanh", "Functional.silu"],
        users_file=USERS_FILE, users_calls=USERS_CALLS, callers=CALLERS,
    )  # fmt: skip


@pytest.fixture
def tap() -> Recorder:
    return Recorder()


@pytest.fixture
def patches(tap: Recorder) -> Iterator[Patches]:
    made = Patches(EVERYTHING, tap)
    tensor, namespaces, names = (
        dict(vars(torch.Tensor)),
        [dict(vars(owner)) for owner in OWNERS],
        patched_names(),
    )
    yield made
    while made.applied:
        made.undo()
    # Every test ends with this: nothing is left, in any way the test leaves the patches.
    assert identities(vars(torch.Tensor)) == identities(tensor)
    for owner, before in zip(OWNERS, namespaces, strict=True):
        new = vars(owner).keys() - before.keys()
        assert all(isinstance(vars(owner)[name], ModuleType) for name in new)  # what torch imported meanwhile
        assert [name for name, value in before.items() if vars(owner)[name] is not value] == []
    after = patched_names()
    assert [name for name, value in names.items() if after[name] is not value] == []


def test_names_that_torch_lacks_are_told(patches: Patches) -> None:
    with patches:
        pass
    assert patches.missing["torch_npu"].startswith("not imported")
    lacking = [
        f"{path}.{api.name}"
        for api in EVERYTHING
        for path in api.owners
        if (owner := resolve_owner(path)) is not None
        and not callable(functools.reduce(lambda o, part: getattr(o, part, None), api.name.split("."), owner))
    ]
    assert lacking, "every version lacks some: what was there only for a while"
    for name in lacking:
        assert patches.missing[name] == f"this {name.partition('.')[0]} has no such function"


def test_calls_of_every_kind(patches: Patches, tap: Recorder) -> None:
    x = torch.rand(2, 3, 3)
    with patches:
        -x, 1 - x, x / 2, 2 / x, x @ x.mT, x == x, abs(x), ~x.bool()
        torch.linalg.svd(x[0]), torch.fft.rfft(x), torch.special.expit(x)
        F.relu(x), torch.relu(x), x.relu()
        F.max_pool2d(x, 2), F.conv2d(x[None], torch.ones(1, 2, 1, 1)), nn.LSTM(3, 2)(x), nn.GRU(3, 2)(x)
        x += 1
        x[0] = 0
    wanted = """
        Tensor.__neg__ Tensor.__rsub__ Tensor.__truediv__ Tensor.__rtruediv__ Tensor.__matmul__ Tensor.__eq__
        Tensor.__abs__ Tensor.__invert__ Tensor.__iadd__ Tensor.__setitem__ Tensor.relu Torch.relu Torch.svd
        Torch.rfft Torch.special.expit Functional.relu Functional.max_pool2d Functional.conv2d VF.lstm VF.gru
    """
    assert set(wanted.split()) <= set(tap.calls)
    tap.take()
    torch.relu(x)
    assert tap.calls == []


def test_what_an_installed_package_holds_is_left(patches: Patches, tap: Recorder) -> None:
    package = ModuleType("a_package")
    package.__file__ = "/somewhere/site-packages/a_package.py"
    exec(USERS_FILE + "from torch import cos", vars(package))
    sys.modules["a_package"] = package
    try:
        held = package.ACTIVATIONS["relu"]
        with patches:
            assert package.ACTIVATIONS["relu"] is held
            package.cos(torch.ones(1))
    finally:
        del sys.modules["a_package"]
    assert "Torch.cos" in tap.calls


def test_a_module_that_takes_the_place_of_another_is_searched_by_itself(
    patches: Patches, tap: Recorder
) -> None:
    """It comes under the name of a user's: neither the last import nor the number of modules is another."""
    user, other, package = (ModuleType("a_name") for _ in range(3))
    user.__file__, other.__file__ = "/home/a/a_name.py", "/home/b/a_name.py"
    package.__file__ = "/somewhere/site-packages/a_name.py"
    for module in (user, other, package):
        exec(USERS_FILE, vars(module))
    try:
        for module, found in ((user, True), (other, True), (package, False)):
            sys.modules["a_name"] = module
            sys.modules.setdefault("a_later_name", ModuleType("a_later_name"))
            held = module.ACTIVATIONS["relu"]
            with patches:
                assert (module.ACTIVATIONS["relu"] is not held) == found
            assert module.ACTIVATIONS["relu"] is held
    finally:
        del sys.modules["a_name"], sys.modules["a_later_name"]


def test_a_function_held_by_a_layer_of_torch_is_given_back(patches: Patches) -> None:
    model = Net()
    activation = model.inner.activation
    patches.apply(model)
    model(torch.ones(1, 2, 4))
    patches.undo()
    assert model.inner.activation is activation


def test_a_class_is_no_function(patches: Patches) -> None:
    with pytest.raises(UsageError, match="no such function"):
        patches.add(torch, "Tensor")


def test_modules_imported_meanwhile_are_searched(patches: Patches) -> None:
    user = ModuleType("a_users_module")
    try:
        with patches:
            with patches.suspended():
                exec("from torch import relu", vars(user))
                sys.modules["a_users_module"] = user
            assert user.relu is torch.relu
        assert user.relu is RELU[0]
    finally:
        del sys.modules["a_users_module"]


def test_wrappers_say_what_they_wrap(patches: Patches) -> None:
    before = {path_name: value for path_name, value in patched_names().items() if value is not ABSENT}
    with patches:
        for (path, name), value in patched_names().items():
            if (path, name) in before and value is not before[path, name]:
                assert inspect.unwrap(value) is inspect.unwrap(before[path, name])


@pytest.mark.parametrize("name", ["relu", "linear", "layer_norm", "cross_entropy"])
def test_pickled_by_name(name: str, patches: Patches) -> None:
    original = getattr(F, name)
    with patches:
        data = pickle.dumps([getattr(F, name), torch.Tensor.add, torch.einsum, torch.linalg.svd, torch.tanh])
    functions = [original, torch.Tensor.add, torch.einsum, torch.linalg.svd, torch.tanh]
    assert identities(pickle.loads(data)) == identities(functions)


def test_equality_and_hash_of_tensors(patches: Patches) -> None:
    x, y = torch.ones(2), torch.ones(2)
    with patches:
        assert hash(x) == hash(x) == id(x)
        assert {x: 1}[x] == 1
        assert bool((x == y).all()) and not bool((x != y).any())
        assert x != "text" and (x == None) is False  # noqa: E711
        with pytest.raises(TypeError, match="unsupported operand"):
            x + object()
        with pytest.raises(TypeError, match="unsupported operand"):
            object() @ x
        assert [] == [] != x.tolist()


def test_operators_ask_the_other_side(patches: Patches) -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "radd"

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    with patches:
        assert torch.ones(1) + Other() == "radd"


class Handled(torch.Tensor):
    """A subclass as in torch's own guide: a table of functions that it handles."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in TABLE:
            return TABLE[func]
        SEEN.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


TABLE: dict[Any, str] = {
    torch.mean: "mean",
    F.softmax: "softmax",
    torch.Tensor.add: "add",
    F.conv2d: "conv2d",
}
SEEN: list[Any] = []


def through_the_table(x: Any) -> list[Any]:
    SEEN.clear()
    handled = (
        torch.mean(x),
        F.softmax(x, 0),
        x.add(1),
        F.conv2d(x, x),
        x + 1,
        1 + x,
        F.softmax(input=x, dim=0),
    )
    (
        x * 2,
        x.relu(),
        F.relu(x),
        -x,
        x == x,
        x @ x,
        torch.cat([x, x]),
        x[0],
        x.sum().item(),
        F.gelu(x),
        x.reshape(1, -1),
    )
    F.layer_norm(x, (2,)), torch.stack([x]), torch.add(1, x), torch.linalg.norm(x), torch.einsum("i,i", x, x)
    return [*handled, *SEEN]


def test_subclasses_see_the_true_functions(patches: Patches, tap: Recorder) -> None:
    x = torch.ones(2).as_subclass(Handled)
    before = through_the_table(x)
    with patches:
        during = through_the_table(x)
    assert identities(during) == identities(before)
    assert before[:7] == ["mean", "softmax", "add", "conv2d", "add", "add", "softmax"]
    assert {"Tensor.add", "Tensor.__add__", "Functional.softmax", "Torch.mean", "Torch.cat"} <= set(tap.calls)


def test_default_device(patches: Patches, tap: Recorder) -> None:
    with patches, torch.device("meta"):
        assert torch.zeros(2).device.type == "meta"
        assert (torch.ones(2) + 1).device.type == "meta"
    assert {"Torch.zeros", "Torch.ones", "Tensor.__add__"} <= set(tap.calls)


def test_parameters_take_the_quick_way(patches: Patches) -> None:
    got: list[Any] = []
    patches.tap = lambda label, original, args, kwargs: got.append(original) or original(*args, **kwargs)
    with patches:
        torch.relu(nn.Parameter(torch.ones(2)))
    assert got[-1] is RELU[0]


def test_collectives(one_process: None, patches: Patches, tap: Recorder) -> None:
    user = ModuleType("a_users_module")
    exec("from torch.distributed import all_reduce", vars(user))
    sys.modules["a_users_module"] = user
    x = torch.ones(2)
    plain = dist.all_reduce(x), dist.all_reduce(x, async_op=True).wait()
    try:
        with patches:
            work = dist.all_reduce(x, async_op=True)
            got = dist.all_reduce(x), work.wait()
            dist.distributed_c10d.broadcast(x, 0)
            user.all_reduce(x)
    finally:
        del sys.modules["a_users_module"]
    assert got == plain == (None, True)
    assert isinstance(work, dist.Work)
    names = [name for name in tap.calls if name.startswith("Dist")]
    assert names == [
        f"Distributed.{name}" for name in ("all_reduce", "all_reduce", "broadcast", "all_reduce")
    ]


def test_data_parallel(one_process: None, patches: Patches, tap: Recorder) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    parallel = nn.parallel.DistributedDataParallel(model)
    with patches:
        parallel(torch.ones(1, 2)).sum().backward()
    assert tap.calls.count("Functional.linear") == 1
    assert torch.equal(model.weight.grad, torch.ones(2, 2))  # type: ignore[arg-type]


def test_npu_and_mindspeed(tap: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x

    npu, atb, speed, ops, gmm = (ModuleType(name) for name in ("torch_npu", "atb", "mindspeed", "ops", "gmm"))
    npu.npu_linear, atb.npu_ring_mla, gmm.npu_gmm = function, lambda x: x, lambda x: x  # type: ignore[attr-defined]
    npu.atb = atb  # type: ignore[attr-defined]
    speed.ops, ops.gmm = ops, gmm  # type: ignore[attr-defined]
    patches = Patches(EVERYTHING, tap)
    with patches:
        pass
    monkeypatch.setitem(sys.modules, "torch_npu", npu)
    monkeypatch.setitem(sys.modules, "mindspeed", speed)
    with patches:
        npu.npu_linear(1), atb.npu_ring_mla(1), gmm.npu_gmm(1)
    assert tap.calls == ["NPU.npu_linear", "NPU.npu_ring_mla", "MindSpeed.npu_gmm"]
    assert npu.npu_linear is function
    assert "torch_npu" not in patches.missing
    assert patches.missing["torch_npu.npu_gelu"] == "this torch_npu has no such function"


def test_whose_call_it_is_through_generated_code(surface: Surface, patches: Patches, tap: Recorder) -> None:
    anonymous: dict[str, Any] = {}  # as the guards of compiled code are
    exec(compile("def call(f, *args): return f(*args)", "<string>", "exec"), anonymous)
    check_whose_call_it_is(surface, patches, tap, anonymous["call"])
