"""A good guest: what copies, pickles, scripts, traces or compiles a model does not notice the patches."""

from __future__ import annotations

import copy
import importlib
import io
import multiprocessing.reduction
import pickle
import sys
import threading
import types
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.fx
import torch.nn.functional as F
from contract_introspection import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_introspection import Guest
from launching import BARE
from probe_runtime.patching.places import original_of, originals_by_id
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
from tapping import Recorder
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

ORIGINALS = {name: (vars(F)[name],) for name in ("relu", "gelu", "max_pool2d", "cross_entropy")}


torch._dynamo.eval_frame.TorchPatcher.patch()  # replaces torch.jit.trace at the first compilation, for good
OWNERS = (
    *(copy, pickle, torch, torch.jit, torch.fx, torch.export, multiprocessing.reduction),
    *(multiprocessing.reduction.ForkingPickler, torch.fx.Tracer, sys),
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.act = F.relu
        self.late = torch.tanh
        self.acts = [F.gelu]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.act(self.conv(x)), 2)
        return torch.cat([self.acts[0](x), self.late(x)]).sum()


X = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)


def saved(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


@pytest.fixture
def guest() -> Guest:
    return Guest(
        patches=lambda tap: Patches(load_apis(views=True), tap), owners=OWNERS, functions=F,
        net=Net, weight=lambda model: model.conv.weight, x=X, same=torch.equal, shallow=True,
        copies=(lambda m: copy.deepcopy(m), lambda m: copy.copy(m), lambda m: pickle.loads(pickle.dumps(m)), saved),
        relu=ORIGINALS["relu"], gelu=ORIGINALS["gelu"],
    )  # fmt: skip


def holds_originals(model: nn.Module) -> bool:
    return (model.act, *model.acts) == (ORIGINALS["relu"][0], ORIGINALS["gelu"][0])


def test_pickles_are_the_same(model: nn.Module, tap: Recorder, patches: Patches) -> None:
    # Those of builtins differ: pickle writes where one lives (torch._C._nn), for a wrapper where it stands.
    model.late, model.acts = None, []
    with patches.suspended():
        plain = pickle.dumps(model)
    tap.take()
    assert pickle.dumps(model) == plain
    file = io.BytesIO()
    file.write(b"before")
    pickle.dump(model, file)
    assert file.getvalue() == b"before" + plain
    pickler = pickle.Pickler(file := io.BytesIO())
    pickler.dump(model)
    assert file.getvalue() == plain
    assert bytes(multiprocessing.reduction.ForkingPickler.dumps([1, model.act]))
    assert pickle.load(io.BytesIO(plain)).act is not None
    assert tap.take() == []


class Pipe:
    """A file without a way back."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += bytes(data)


def test_pickled_to_a_pipe(model: nn.Module) -> None:
    pipe = Pipe()
    pickle.dump(model, pipe)
    assert holds_original_act(pickle.loads(pipe.data))


def holds_original_act(model: nn.Module) -> bool:
    return original_of(model.act) is ORIGINALS["relu"][0]


def test_buffers_are_handed_over_once(model: nn.Module) -> None:
    class Buffer:
        def __reduce_ex__(self, protocol: int) -> Any:
            return bytes, (pickle.PickleBuffer(b"data"),)

    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps([Buffer(), model.act], protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 1
    assert pickle.loads(data, buffers=buffers)[0] == b"data"


def test_what_cannot_be_pickled_still_cannot(model: nn.Module) -> None:
    for broken in (lambda: 1, sys):
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            pickle.dumps(broken)


def test_picklers(model: nn.Module, patches: Patches) -> None:
    assert isinstance(pickle.Pickler(io.BytesIO()), pickle.Pickler)
    with patches.suspended():
        before = pickle.Pickler(io.BytesIO())
    assert isinstance(before, pickle.Pickler)

    class Mine(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "tensor" if isinstance(obj, torch.Tensor) else None

    assert not isinstance(before, Mine)
    Mine(file := io.BytesIO()).dump([torch.ones(1), model.act])
    assert b"tensor" in file.getvalue()


@pytest.mark.parametrize("where", ["path", "buffer"])
def test_torch_save(where: str, model: nn.Module, tap: Recorder, tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(4, 1, 8)  # its default activation is the original
    tap.take()
    file: Any = tmp_path / "model.pt" if where == "path" else io.BytesIO()
    torch.save([model, layer], file)
    if where == "buffer":
        file.seek(0)
    loaded, _ = torch.load(file, weights_only=False)
    assert tap.take() == []
    assert holds_originals(loaded)
    assert torch.equal(loaded(X), model(X))


@pytest.mark.parametrize("built", ["before", "meanwhile"])
def test_transformer_layers(built: str, patches: Patches) -> None:
    """The layer compares its activation with F.relu by identity, to choose the quick way in eval."""
    layer = nn.TransformerEncoderLayer(4, 1, 8) if built == "before" else None
    with patches:
        layer = layer or nn.TransformerEncoderLayer(4, 1, 8)
        assert layer.activation_relu_or_gelu == 1
        assert pickle.loads(pickle.dumps(layer)).activation is original_of(F.relu)


def test_script(model: nn.Module, tap: Recorder) -> None:
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
            return torch.cat([x, x.view(1, -1, 3, 3)], 0).sum()

    plain = Scripted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(plain)
        traced = torch.jit.trace(plain, (X,))
    tap.take()
    assert torch.equal(scripted(X), plain(X))
    assert torch.equal(traced(X), plain(X))
    assert "aten::relu" in str(traced.inlined_graph)


def test_script_of_a_local_class(model: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scale = torch.jit.script(lambda_free_scale)
        assert torch.equal(scale(X), lambda_free_scale(X))


def lambda_free_scale(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x) * 2


def test_fx(model: nn.Module, patches: Patches, tap: Recorder) -> None:
    graph = torch.fx.symbolic_trace(model)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert ORIGINALS["relu"][0] in targets
    with patches.suspended():
        code = torch.fx.symbolic_trace(model).code
    assert graph.code == code
    tap.take()
    # A graph that the user made is a model: its calls are recorded.
    assert torch.equal(graph(X), model(X))
    assert "Functional.relu" in tap.calls


def test_make_fx(model: nn.Module, tap: Recorder) -> None:
    graph = make_fx(lambda x: F.relu(x) + 1)(X)
    assert tap.take() == []
    assert torch.equal(graph(X), F.relu(X) + 1)


def test_export(model: nn.Module, tap: Recorder) -> None:
    exported = torch.export.export(nn.Sequential(nn.Linear(8, 2), nn.ReLU()), (X,))
    assert [name for name in tap.take() if "relu" in name] == []
    assert exported.module()(X).shape == (1, 1, 8, 2)


def test_tensors_go_through_queues(patches: Patches, tap: Recorder) -> None:
    with patches:
        data = multiprocessing.reduction.ForkingPickler.dumps([1, {"a": torch.Size([2])}])
    assert pickle.loads(bytes(data)) == [1, {"a": torch.Size([2])}]
    assert tap.calls == []


def test_a_pickling_thread_does_not_hide_anothers_calls(patches: Patches, tap: Recorder) -> None:
    """DataLoader workers are fed by a thread that pickles all the time."""
    stop = threading.Event()
    data = {"indices": list(range(100))}

    def feed() -> None:
        while not stop.is_set():
            pickle.dumps(data)
            multiprocessing.reduction.ForkingPickler.dumps(data)
            copy.deepcopy(data)
            pickle.loads(pickle.dumps(data))

    with patches:
        thread = threading.Thread(target=feed)
        thread.start()
        for _ in range(3000):
            torch.relu(X)
        stop.set()
        thread.join()
    assert tap.calls.count("Torch.relu") == 3000


USERS_TABLE = """
import torch
TABLE = frozenset([torch.Tensor.add, torch.relu])
"""


def test_a_table_of_methods_made_meanwhile(
    patches: Patches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_late_table.py").write_text(USERS_TABLE)
    monkeypatch.syspath_prepend(tmp_path)
    with patches:
        module = importlib.import_module("a_late_table")
    assert {torch.Tensor.add, torch.relu} == module.TABLE
    del sys.modules["a_late_table"]


def test_who_asks_for_its_descriptor_gets_that_of_functions(patches: Patches) -> None:
    """By it Dynamo (torch 2.11) tells whether what a module holds is to be found in the module's class."""

    class Holder:
        act = None

    with patches:
        assert type(F.relu).__get__ is types.FunctionType.__get__  # type: ignore[attr-defined]
        Holder.act = F.relu  # type: ignore[assignment]
        assert Holder().act.__func__ is F.relu  # type: ignore[attr-defined]  # Python finds its own


class Compiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.conv, self.norm = nn.Linear(4, 4), nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)
        self.layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
        self.act = F.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.linear(x)) + 1
        x = F.max_pool1d(self.conv(x.transpose(1, 2)), 2).transpose(1, 2)
        x = F.layer_norm(self.layer(x), (4,)).view(-1, 4).clone()
        x[0] = 1
        x = self.norm(torch.cat([x, torch.ones(1, 4)]))
        x = torch.einsum("ij,kj->ik", x, x).mul_(2)
        return F.cross_entropy(-x @ x.t(), torch.zeros(x.shape[0], dtype=torch.long))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("first", ["plain", "patched"])
def test_compiled_models(backend: str, first: str, patches: Patches, tap: Recorder) -> None:
    """The same numbers, nothing from inside the region recorded, and one compilation for each of the two
    states."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Compiled()
    x = torch.randn(2, 4, 4)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)

    def run(function: Any) -> list[Any]:
        model.zero_grad()
        torch.manual_seed(1)
        loss = function(x)
        tap.take()
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    wanted = run(model)
    if first == "plain":
        run(compiled)
    for _ in range(3):
        patches.apply(model)
        torch.manual_seed(1)
        tap.take()
        for _ in range(2):
            compiled(x)
            assert tap.take() == []
        got = [run(compiled)]
        patches.undo()
        got.append(run(compiled))
        for values in got:
            assert all(torch.equal(a, b) for a, b in zip(values, wanted, strict=True))
    assert counter.frame_count == 2


def test_many_starts_leave_nothing(tap: Recorder) -> None:
    patches = Patches(load_apis(), tap)
    user = ModuleType("a_users_module")
    sys.modules["a_users_module"] = user
    original = copy.deepcopy
    sizes = set()
    try:
        for _ in range(4):
            with patches:
                user.duplicate = copy.deepcopy
                assert user.duplicate is not original
            assert user.duplicate is original
            sizes.add(len(originals_by_id()))
    finally:
        del sys.modules["a_users_module"]
    assert len(sizes) == 1


def test_graph_breaks_are_seen(patches: Patches, tap: Recorder) -> None:
    @torch.compile(backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        outside(x)
        return torch.tanh(x)

    @torch._dynamo.disable
    def outside(x: torch.Tensor) -> None:
        torch.sigmoid(x)

    with patches:
        function(X)
        tap.take()
        function(X)
    assert tap.calls == ["Torch.sigmoid"]


def test_first_compilation_with_patches_in_place() -> None:
    """torch.compile fills its tables of functions at first use: with the originals, also then."""
    BARE.run("-c", FIRST)


FIRST = """
import sys, torch, torch.nn.functional as F
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
assert "torch._dynamo" not in sys.modules
patches = Patches(load_apis(views=True), lambda label, original, args, kwargs: original(*args, **kwargs))
def f(x): return F.layer_norm(torch.relu(x.add(1)) * 2 + x, (8,)).sum()
x = torch.ones(3, 8)
with patches:
    assert torch.equal(torch.compile(f, backend="eager", fullgraph=True)(x), f(x))
assert "probe" not in torch.jit.trace.__wrapped__.__code__.co_filename  # what Dynamo disabled is torch's own
torch._dynamo.reset()
assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True)(x), f(x))
from torch._dynamo.trace_rules import get_torch_obj_rule_map, get_tensor_method
assert torch.relu in get_torch_obj_rule_map() and torch.Tensor.add in get_tensor_method()
with torch.device("meta"):
    assert torch.ones(1).device.type == "meta"
"""


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_dumped_step_imports_nothing_of_torch(level: str, tmp_path: Path) -> None:
    """Asking torch for torch.onnx imports torch._dynamo, which takes a second and replaces torch.manual_seed."""
    BARE.run("-c", STEP, str(tmp_path), level)


STEP = """
import sys, torch
from probe_torch import PrecisionDebugger
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
def train():
    model(torch.ones(2, 4)).sum().backward()
train()  # torch imports what it needs itself
before, seed = set(sys.modules), torch.manual_seed
debugger = PrecisionDebugger(dump_path=sys.argv[1], level=sys.argv[2], task="statistics")
debugger.start(model)
train()
debugger.stop()
debugger.step()
imported = {name for name in set(sys.modules) - before if name.startswith("torch")}
assert imported <= {"torch.utils._device"}, imported
assert torch.manual_seed is seed
"""


def test_what_is_imported_meanwhile_is_guarded_too(tmp_path: Path) -> None:
    BARE.run("-c", MEANWHILE, str(tmp_path))


MEANWHILE = """
import sys, torch
from probe_torch import PrecisionDebugger
from probe_runtime.patching import original_of
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="statistics")
debugger.start()
assert not {"torch.onnx", "torch._dynamo"} & set(sys.modules)
export, patch = torch.onnx.export, torch._dynamo.eval_frame.TorchPatcher.patch
assert original_of(export) is not export and original_of(patch) is not patch
script = torch.jit.script(torch.nn.Sequential(torch.nn.ReLU()))  # the others are still in place
debugger.stop()
debugger.step()
assert torch.onnx.export is original_of(export)
assert torch._dynamo.eval_frame.TorchPatcher.patch is original_of(patch)
debugger.start()  # found from the beginning now
assert torch.onnx.export is not original_of(export)
debugger.stop()
assert torch.onnx.export is original_of(export)
"""
