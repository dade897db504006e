"""Each known way to write a tensor without raising its `_version`: numbers and files are those of now.

Why numbers are not shared: no version counter tells of these writes.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from dumping import agrees, load, opened, records
from torch import Tensor, nn
from torch.optim import optimizer as optimizers

N = 40
Write = Callable[[], Any]


class Look(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.abs(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = Look()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.look(x)
        return found


def param() -> nn.Parameter:
    return nn.Parameter(torch.rand(N) + 1)


def batch_norm() -> tuple[Tensor, Write]:
    mean = torch.zeros(N)
    return mean, lambda: F.batch_norm(torch.rand(8, N), mean, torch.ones(N), training=True)


def native_batch_norm() -> tuple[Tensor, Write]:
    mean = torch.zeros(N)
    return mean, lambda: torch.native_batch_norm(
        torch.rand(8, N), None, None, mean, torch.ones(N), True, 0.1, 1e-5
    )


def scripted_batch_norm() -> tuple[Tensor, Write]:
    norm = torch.jit.script(nn.BatchNorm1d(N))
    return norm.running_mean, lambda: norm(torch.rand(8, N))


def observer() -> tuple[Tensor, Write]:
    low, one = torch.zeros(1), torch.ones(1, dtype=torch.long)
    return low, lambda: torch.fused_moving_avg_obs_fake_quant(
        -torch.rand(5) - 1, one, one, low, torch.zeros(1), torch.ones(1), torch.zeros(1, dtype=torch.int32),
        0.1, 0, 255, 0,
    )  # fmt: skip


def unscaled() -> tuple[Tensor, Write]:
    p = param()
    p.grad = torch.full((N,), 8.0)
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=4.0), torch.optim.SGD([p])
    scaler.scale(torch.ones(()))
    return p.grad, lambda: scaler.unscale_(optimizer)


def fused_state() -> tuple[Tensor, Write]:
    p = param()
    optimizer = torch.optim.Adam([p], fused=True)
    p.grad = torch.ones(N)
    optimizer.step()
    return optimizer.state[p]["exp_avg"], optimizer.step


def noise() -> tuple[Tensor, Write]:
    x = torch.zeros(N)
    return x, lambda: torch._C._nn.rrelu_with_noise(-torch.ones(N), x, 0.1, 0.3, True)  # type: ignore[attr-defined]


def helper() -> tuple[Tensor, Write]:
    x, where = torch.zeros(N), torch.zeros(N, dtype=torch.long)
    return x, lambda: torch._cummax_helper(torch.arange(float(N)), x, where, 0)  # type: ignore[attr-defined]


def applied() -> tuple[Tensor, Write]:
    x = torch.zeros(N)
    return x, lambda: x.apply_(lambda value: value + 7)


def sparse() -> tuple[Tensor, Write]:
    p = param()

    def write() -> None:
        made = torch.sparse_coo_tensor(torch.arange(N)[None], p.detach(), (N,), is_coalesced=True)
        p.abs()
        made.values().mul_(3)

    return p, write


class Wrapped(Tensor):
    """A tensor around another, as torchao and DTensor have them."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapped:
        made: Wrapped = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func(*(x.inner if isinstance(x, Wrapped) else x for x in args), **(kwargs or {}))
        return args[0]


def below_the_counter() -> tuple[Tensor, Write]:
    p = param()
    wrapped = Wrapped(p.detach())
    return p, lambda: wrapped.mul_(3)


def from_numpy() -> tuple[Tensor, Write]:
    memory = np.ones(N, np.float32)
    return torch.from_numpy(memory).requires_grad_(), partial(memory.__setitem__, slice(20, None), 5.0)


def numpy_before() -> tuple[Tensor, Write]:
    x = torch.ones(N)
    memory = x.numpy()
    return x.requires_grad_(), partial(memory.__setitem__, slice(20, None), 5.0)


def fill_in_another_process(x: Tensor) -> None:
    child = os.fork()
    if not child:
        x.detach().fill_(7.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def shared() -> tuple[Tensor, Write]:
    x = torch.ones(N).share_memory_().requires_grad_()
    return x, lambda: fill_in_another_process(x)


def data_before() -> tuple[Tensor, Write]:
    p = param()
    alias = p.data
    return p, lambda: alias[20:].mul_(5)


def flat_buffer() -> tuple[Tensor, Write]:
    p, flat = param(), torch.rand(3 * N)
    p.data = flat[N : 2 * N]
    return p, lambda: flat.mul_(5)


def pointer() -> tuple[Tensor, Write]:
    p = param()
    return p, lambda: ctypes.memset(p.data_ptr(), 0, 4 * N)


def data() -> tuple[Tensor, Write]:
    p = param()
    return p, lambda: p.data[20:].mul_(5)


def collective() -> tuple[Tensor, Write]:
    p = param()
    return p, torch.no_grad()(lambda: dist.scatter(p, [torch.full((N,), 9.0)]))


def fused_by_name() -> tuple[Tensor, Write]:
    p = param()
    keys = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    more = {"maximize": False, "is_first_step": True}
    return p, lambda: torch._fused_sgd_([p], [torch.ones(N)], [], **keys, **more)  # type: ignore[attr-defined]


LIBRARY = torch.library.Library("probe_test_silent", "DEF")
LIBRARY.define("write(Tensor(a!) x) -> ()")
LIBRARY.impl("write", lambda x: ctypes.memset(x.detach().data_ptr(), 0, 4 * N) and None, "CPU")


def operator() -> tuple[Tensor, Write]:
    p = param()
    return p, torch.no_grad()(lambda: torch.ops.probe_test_silent.write(p))


def storage() -> tuple[Tensor, Write]:
    p = param()
    held = p.untyped_storage()
    return p, lambda: held.fill_(0)


class Replayed:
    """Stands for torch.cuda.CUDAGraph, which needs a GPU: a replay writes what was captured, past everything."""

    pointer = 0

    def replay(self) -> None:
        ctypes.memset(self.pointer, 0, 4 * N)


def graph() -> tuple[Tensor, Write]:
    p, made = param(), torch.cuda.CUDAGraph()
    made.pointer = p.data_ptr()  # type: ignore[attr-defined]
    return p, lambda: made.replay()  # not bound before start


def hidden_region() -> tuple[Tensor, Write]:
    p = param()

    def write() -> None:
        with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
            p.mul_(3)

    return p, write


class Unheard(torch.optim.Optimizer):
    """One like those of C++ extensions: it knows the address, and tells nobody."""

    def __init__(self, p: Tensor) -> None:
        super().__init__([p], {})
        self.pointer = p.data_ptr()

    def step(self, closure: Any = None) -> None:
        ctypes.memset(self.pointer, 0, 4 * N)
        if closure is not None:
            closure()


def optimizer() -> tuple[Tensor, Write]:
    p = param()
    return p, Unheard(p).step


WRITES: dict[str, Callable[[], tuple[Tensor, Write]]] = {
    "running statistics of F.batch_norm and of the modules on it": batch_norm,
    "running statistics of torch.native_batch_norm and its kin": native_batch_norm,
    "running statistics in TorchScript": scripted_batch_norm,
    "minimum and maximum of a quantisation observer": observer,
    "state of a fused optimizer": fused_state,
    "noise of rrelu_with_noise": noise,
    "values of _cummax_helper": helper,
    "numpy, a buffer, a file or DLPack, which the tensor was made from": from_numpy,
    "Tensor.numpy() taken before start": numpy_before,
    "another process, into shared memory": shared,
    "Tensor.data or DLPack taken before start": data_before,
    "a view in a flat buffer (FSDP1, Megatron, gradients under DDP)": flat_buffer,
    "a way to the bytes that is taken while collecting": pointer,
    "Tensor.data": data,
    "a sparse tensor around the same values": sparse,
    "collectives, also those of other libraries": collective,
    "Tensor.apply_, map_, map2_": applied,
    "GradScaler.unscale_: found_inf and gradients, which autograd follows with create_graph": unscaled,
    "fused kernels called by name": fused_by_name,
    "operators of torch.ops: custom ones, and those that the dispatcher knows as silent": operator,
    "operators of torch.ops below the counter: within __torch_dispatch__, whose class has been counted instead": (
        below_the_counter
    ),
    "a storage that somebody holds": storage,
    "CUDAGraph.replay": graph,
    "regions that hide writes from the counter (FSDP2, operators written in C++ style)": hidden_region,
    "the step of every optimizer": optimizer,
}


def inputs(dump: Path) -> list[Any]:
    """What the looks had as input, in their order, as modules and as functions."""
    rank = 0 if dist.is_initialized() else None
    found = []
    for name, record in records(dump, 0, rank).items():
        if name.startswith(("Module.look.Look.forward.", "Torch.abs.")) and "backward" not in name:
            found.append((int(name.split(".")[-1] if "Module" in name else name.split(".")[2]), record))
    return [record["input_args"][0] for _, record in sorted(found, key=lambda item: item[0])]


def looked_at_twice(folder: Path, how: str, x: Tensor, write: Write) -> None:
    net, truths, files = Net(), [], how != "statistics"
    late = how == "behind the run"
    with opened(folder, level="mix", task="tensor" if files else how, async_dump=late) as debugger:
        debugger.start(net)
        version = x._version
        net(x)
        net(x)
        truths.append(x.detach().clone())
        write()
        net(x)
        truths.append(x.detach().clone())
        assert x._version == version, "torch tells of this write: it need not be here"
        debugger.stop()
        debugger.step()
    assert not torch.equal(*truths), "nothing was written"
    found = inputs(folder / "dump")
    times = len(found) // 3
    assert len(found) == 3 * times > 0
    rank = 0 if dist.is_initialized() else None
    for leaf, truth in zip(found, [truths[0]] * 2 * times + [truths[1]] * times, strict=True):
        assert agrees(leaf, truth), (leaf, truth)
        if files:
            assert torch.equal(load(folder / "dump", leaf, 0, rank).detach(), truth)


@pytest.mark.parametrize("how", ["statistics", "tensor", "behind the run"])
@pytest.mark.parametrize("what", WRITES)
def test_what_was_written_in_silence_is_read_again(
    what: str, how: str, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if WRITES[what] is collective:
        request.getfixturevalue("one_process")
    if WRITES[what] is graph:
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Replayed)
    looked_at_twice(tmp_path, how, *WRITES[what]())


MORE: dict[str, Callable[[], tuple[Tensor, Write]]] = {}


def also(case: Callable[[], tuple[Tensor, Write]]) -> Callable[[], tuple[Tensor, Write]]:
    MORE[case.__name__] = case
    return case


@also
def shared_while_started() -> tuple[Tensor, Write]:
    p = param()

    def write() -> None:
        p.share_memory_()
        p.abs()
        fill_in_another_process(p)

    return p, write


@also
def applied_to_what_autograd_follows() -> tuple[Tensor, Write]:
    p = param()
    return p, lambda: p.detach().apply_(lambda value: value + 7)


@also
def unscaled_gradients_of_a_penalty() -> tuple[Tensor, Write]:
    """With create_graph=True gradients are followed, and GradScaler divides them without a word."""
    p = param()
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=4.0), torch.optim.SGD([p])
    scaler.scale(p.square().sum()).backward(create_graph=True)
    assert p.grad is not None and p.grad.requires_grad
    return p.grad, lambda: scaler.unscale_(optimizer)


@also
def redispatched() -> tuple[Tensor, Write]:
    p = param()
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return p, lambda: torch.ops.aten.mul_.Tensor.redispatch(keys, p, torch.tensor(3.0))


@also
def keys_excluded() -> tuple[Tensor, Write]:
    p = param()
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)

    def write() -> None:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            p.detach().mul_(3)

    return p, write


def written_through(p: Tensor, alias: Callable[[], Tensor]) -> tuple[Tensor, Write]:
    """Return a write through another tensor on the memory of `p`, after which `p` was looked at."""

    def write() -> None:
        other = alias()
        p.abs()
        other.mul_(3)

    return p, write


@also
def sparse_rows() -> tuple[Tensor, Write]:
    p = param()
    rows, columns = torch.tensor([0, N]), torch.arange(N)
    return written_through(p, lambda: torch.sparse_csr_tensor(rows, columns, p.detach(), (1, N)))


@also
def set_to_the_same_memory() -> tuple[Tensor, Write]:
    p = param() * 1
    return written_through(p, lambda: torch.empty(0).set_(p.detach()))


@also
def exported_to_dlpack() -> tuple[Tensor, Write]:
    p = param()
    dlpack: Any = torch.utils.dlpack
    return written_through(p, lambda: dlpack.from_dlpack(dlpack.to_dlpack(p.detach())))


@also
def exported_by_dlpack_before() -> tuple[Tensor, Write]:
    p = param()
    alias = torch.from_dlpack(p.detach())
    return p, lambda: alias.mul_(2)


@also
def fused_adam() -> tuple[Tensor, Write]:
    """An embedding with padding: its first row never changes."""
    rows = nn.Embedding(10, 4, padding_idx=0)
    made = torch.optim.Adam(rows.parameters(), fused=True)

    def write() -> None:
        for _ in range(2):
            made.zero_grad()
            rows(torch.arange(10)).square().sum().backward()
            made.step()

    return rows.weight, write


@also
def fused_by_its_operator() -> tuple[Tensor, Write]:
    p = param()
    keys = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    more = {"maximize": False, "is_first_step": True}
    return p, lambda: torch.ops.aten._fused_sgd_([p], [torch.ones(N)], [], **keys, **more)


@also
def preserved_version() -> tuple[Tensor, Write]:
    p = param()

    def write() -> None:
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(p):  # type: ignore[attr-defined]
            p.mul_(3)

    return p, write


@also
def mapped() -> tuple[Tensor, Write]:
    x = torch.zeros(N)
    return x, lambda: x.map_(torch.ones(N), lambda a, b: a + b)  # type: ignore[attr-defined]


@also
def updated_statistics() -> tuple[Tensor, Write]:
    norm = nn.BatchNorm1d(N)
    return norm.get_buffer("running_var"), lambda: norm(torch.rand(8, N))


@also
def found_inf() -> tuple[Tensor, Write]:
    found = torch.zeros(1)
    wild = torch.full((2,), float("inf"))
    return found, lambda: torch._amp_foreach_non_finite_check_and_unscale_([wild], found, torch.ones(1))


@also
def module_statistics_in_a_compiled_region() -> tuple[Tensor, Write]:
    torch._dynamo.reset()
    norm = nn.BatchNorm1d(N)
    compiled = torch.compile(norm, backend="eager")
    return norm.get_buffer("running_mean"), lambda: compiled(torch.rand(8, N))


@pytest.mark.parametrize("case", MORE)
def test_others_of_the_same_kind(case: str, tmp_path: Path) -> None:
    looked_at_twice(tmp_path, "tensor", *MORE[case]())


def test_a_closure_sees_what_its_optimizer_wrote(tmp_path: Path) -> None:
    """The closure runs the model after the optimizer wrote, in the same step."""
    net, p = Net(), param()
    made = Unheard(p)
    with opened(tmp_path, level="L0") as debugger:
        debugger.start(net)
        net(p)
        made.step(lambda: (net(p), ctypes.memset(made.pointer, 1, 4 * N), net(p)))
        debugger.stop()
        debugger.step()
    before, within, after = (leaf["Max"] for leaf in inputs(tmp_path / "dump"))
    assert before > 1 and within == 0 and 0 < after < 1e-30


def looks_twice(folder: Path, run: Callable[[nn.Module, Callable[[], None]], None]) -> None:
    """A run of a batch norm's two passes, whose running mean is seen before and after each, has three means."""
    net, norm, truths = Net(), nn.BatchNorm1d(N), []
    mean = norm.get_buffer("running_mean")

    def look() -> None:
        truths.append(mean.clone())
        net(mean)

    def passes() -> None:
        look()
        for _ in range(2):
            norm(torch.rand(8, N))
            look()

    with opened(folder, level="L0", task="tensor") as debugger:
        debugger.start(net)
        run(norm, passes)
        debugger.stop()
        debugger.step()
    found = inputs(folder / "dump")
    assert len(found) == len(truths) and len(truths) > 2 and not torch.equal(truths[0], truths[1])
    for leaf, truth in zip(found, truths, strict=True):
        assert agrees(leaf, truth) and torch.equal(load(folder / "dump", leaf), truth)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_closure_of_torchs_own_optimizer_writes_silently_too(make: Any, tmp_path: Path) -> None:
    def run(norm: nn.Module, passes: Callable[[], None]) -> None:
        p = param()
        made = make([p])

        def closure() -> Tensor:
            passes()
            made.zero_grad()
            (loss := p.square().sum()).backward()
            return loss

        made.step(closure)

    looks_twice(tmp_path, run)


@pytest.mark.parametrize("where", ["pre", "post", "pre of all", "post of all"])
def test_a_hook_of_an_optimizers_step_writes_silently_too(where: str, tmp_path: Path) -> None:
    def run(norm: nn.Module, passes: Callable[[], None]) -> None:
        p = param()
        p.grad = torch.ones(N)
        made = torch.optim.SGD([p])
        kind = where.partition(" ")[0]
        owner = optimizers if where.endswith("of all") else made
        name = f"register_{'optimizer_' if owner is not made else ''}step_{kind}_hook"
        handle = getattr(owner, name)(lambda *given: passes())
        made.step()
        handle.remove()

    looks_twice(tmp_path, run)


def test_another_thread_writes_silently_during_a_step(tmp_path: Path) -> None:
    class Slow(torch.optim.SGD):
        """Waits where torch's own optimizers are found to compute for a while."""

        def _init_group(self, *given: Any) -> Any:
            other = threading.Thread(target=self.meanwhile)
            other.start()
            other.join()
            return super()._init_group(*given)  # type: ignore[misc]

    Slow.__module__ = torch.optim.SGD.__module__

    def run(norm: nn.Module, passes: Callable[[], None]) -> None:
        p = param()
        p.grad = torch.ones(N)
        made = Slow([p])
        made.meanwhile = passes  # type: ignore[attr-defined]
        made.step()

    looks_twice(tmp_path, run)
