"""Each known way to write a tensor without raising its `_version`: numbers and files are those of now.

Why numbers are not shared: no version counter tells of these writes. Each tensor is read again at each look, so there
is one case of each kind here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from dumping import agrees, dumped, load, records
from torch import Tensor, nn

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


def of(make: Callable[[], Tensor], write: Callable[[Any], Any]) -> Callable[[], tuple[Tensor, Write]]:
    """Return what makes a tensor, and the writing into it."""

    def made() -> tuple[Tensor, Write]:
        x = make()
        return x, lambda: write(x)

    return made


def zeros() -> Tensor:
    return torch.zeros(N)


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


def multiplied_in_a_sparse_tensor(p: Tensor) -> None:
    made = torch.sparse_coo_tensor(torch.arange(N)[None], p.detach(), (N,), is_coalesced=True)
    p.abs()
    made.values().mul_(3)


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


@torch.no_grad()
def scattered(p: Tensor) -> None:
    dist.scatter(p, [torch.full((N,), 9.0)])


def fused_by_name(p: Tensor) -> None:
    keys = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    torch._fused_sgd_([p], [torch.ones(N)], [], **keys, maximize=False, is_first_step=True)  # type: ignore[attr-defined]


LIBRARY = torch.library.Library("probe_test_silent", "DEF")
LIBRARY.define("write(Tensor(a!) x) -> ()")
LIBRARY.impl("write", lambda x: ctypes.memset(x.detach().data_ptr(), 0, 4 * N) and None, "CPU")


@torch.no_grad()
def written_by_an_operator(p: Tensor) -> None:
    torch.ops.probe_test_silent.write(p)


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


@torch.no_grad()
def multiplied_below_the_counter(p: Tensor) -> None:
    with torch._C._AutoDispatchBelowADInplaceOrView():
        p.mul_(3)


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
    "noise of rrelu_with_noise": of(
        zeros,
        lambda x: torch._C._nn.rrelu_with_noise(-torch.ones(N), x, 0.1, 0.3, True),  # type: ignore[attr-defined]
    ),
    "values of _cummax_helper": of(
        zeros,
        lambda x: torch._cummax_helper(torch.arange(float(N)), x, torch.zeros(N, dtype=torch.long), 0),  # type: ignore[attr-defined]
    ),
    "numpy, a buffer, a file or DLPack, which the tensor was made from": from_numpy,
    "Tensor.numpy() taken before start": numpy_before,
    "another process, into shared memory": shared,
    "Tensor.data or DLPack taken before start": data_before,
    "a view in a flat buffer (FSDP1, Megatron, gradients under DDP)": flat_buffer,
    "a way to the bytes that is taken while collecting": of(
        param, lambda p: ctypes.memset(p.data_ptr(), 0, 4 * N)
    ),
    "Tensor.data": of(param, lambda p: p.data[20:].mul_(5)),
    "a sparse tensor around the same values": of(param, multiplied_in_a_sparse_tensor),
    "collectives, also those of other libraries": of(param, scattered),
    "Tensor.apply_, map_, map2_": of(zeros, lambda x: x.apply_(lambda value: value + 7)),
    "GradScaler.unscale_: found_inf and gradients, which autograd follows with create_graph": unscaled,
    "fused kernels called by name": of(param, fused_by_name),
    "operators of torch.ops: custom ones, and those that the dispatcher knows as silent": of(
        param, written_by_an_operator
    ),
    "operators of torch.ops below the counter: within __torch_dispatch__, whose class has been counted instead": (
        below_the_counter
    ),
    "a storage that somebody holds": storage,
    "CUDAGraph.replay": graph,
    "regions that hide writes from the counter (FSDP2, operators written in C++ style)": of(
        param, multiplied_below_the_counter
    ),
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
    with dumped(folder, net, level="mix", task="tensor" if files else how, async_dump=late):
        version = x._version
        net(x)
        net(x)
        truths.append(x.detach().clone())
        write()
        net(x)
        truths.append(x.detach().clone())
        assert x._version == version, "torch tells of this write: it need not be here"
    assert not torch.equal(*truths), "nothing was written"
    found = inputs(folder / "dump")
    times = len(found) // 3
    assert len(found) == 3 * times > 0
    rank = 0 if dist.is_initialized() else None
    for leaf, truth in zip(found, [truths[0]] * 2 * times + [truths[1]] * times, strict=True):
        assert agrees(leaf, truth), (leaf, truth)
        if files:
            assert torch.equal(load(folder / "dump", leaf, 0, rank).detach(), truth)


@pytest.mark.parametrize(
    ("what", "how"),
    [
        *((what, "tensor") for what in WRITES),  # numbers as well as files
        *((next(iter(WRITES)), how) for how in ("statistics", "behind the run")),
        *(("another process, into shared memory", how) for how in ("statistics", "behind the run")),
    ],
)
def test_what_was_written_in_silence_is_read_again(
    what: str, how: str, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what.startswith("collectives"):
        request.getfixturevalue("one_process")
    if WRITES[what] is graph:
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Replayed)
    looked_at_twice(tmp_path, how, *WRITES[what]())
