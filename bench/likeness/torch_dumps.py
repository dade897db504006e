"""The dumps of PyTorch for `bench.alike`: `torch_dumps.py FOLDER [NAME ...]`, with the packages of one checkout."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from cases import Case, config_file, in_threads, main, of_training, recovered
from probe_torch import PrecisionDebugger
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 8


@dataclasses.dataclass
class Both:
    """An output that is a dataclass."""

    mixed: Tensor
    rest: dict[str, Any]


class Parts(NamedTuple):
    """An output that is a named tuple."""

    first: Tensor
    second: Tensor | None


class Nested(nn.Module):
    """Takes and returns nested values: lists, mappings, a dataclass, None, numbers, text."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, pack: dict[str, Any], *rest: Any, scale: float = 1.0, mode: str | None = None) -> Both:
        h = self.one(pack["x"]) * scale
        other = [self.two(item) for item in pack["more"]]
        return Both(h + other[0], {"other": other, "none": None, "n": 3, "shape": h.shape})


class Splits(nn.Module):
    """Returns a named tuple, of a mapping with a tensor twice."""

    def forward(self, both: Both) -> Parts:
        return Parts(both.mixed.tanh() + both.rest["other"][1], None)


class InPlace(nn.Module):
    """Writes into its input and into a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(x) + 1
        x[0].mul_(2)
        return x


class Double(torch.autograd.Function):
    """A user's function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Block(nn.Module):
    """Pre-norm attention and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))
        return x if mask is None else x.masked_fill(~mask.any(-1, keepdim=True), 0.0)


class Net(nn.Module):
    """Shared modules, tied weights, nested values, batch norm, in-place writes, several outputs."""

    def __init__(self, checkpointed: bool | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.nested, self.splits, self.inplace = Nested(), Splits(), InPlace()
        self.conv, self.bn = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm1d(WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 11, bias=False)
        self.head.weight = self.embed.weight
        self.checkpointed = checkpointed

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        for block in self.blocks:
            if self.checkpointed is None:
                x = block(x, mask=mask)
            else:
                x = checkpoint(block, x, mask, use_reentrant=self.checkpointed)
        both = self.nested({"x": x, "more": [x, x.detach()], "n": None}, 3, "text", scale=0.5, mode="a")
        x = self.splits(both).first
        x = self.inplace(self.bn(self.conv(x.transpose(1, 2))))
        x, _ = self.rnn(x.transpose(1, 2))
        x = Double.apply(self.blocks[0](x))
        return self.head(torch.cat([x, x.flip(1)], 1))


def batch(seed: int = 1) -> Tensor:
    """Return token numbers."""
    return torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, seed: int = 1) -> Tensor:
    """Return a loss of the model."""
    tokens = batch(seed)
    return F.cross_entropy(model(tokens).flatten(0, 1), torch.cat([tokens, tokens], 1).flatten())


def trained(folder: Path, *, steps: int = 2, checkpointed: bool | None = None, **keys: Any) -> None:
    """Train for a few dumped steps, gradients clipped."""
    torch.manual_seed(0)
    model = Net(checkpointed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        for i in range(steps):
            debugger.start(model)
            loss_of(model, i).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            debugger.stop()
            debugger.step()


def accumulated(folder: Path, **keys: Any) -> None:
    """Several backward passes: over one graph, over several, of gradients' gradients, and only a part of a graph."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(3, WIDTH, requires_grad=True)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        h = model[0](x)
        y = model[2](model[1](h)) * h
        y.sum().backward(retain_graph=True)
        y.square().sum().backward(retain_graph=True)
        torch.autograd.grad(y[0].sum(), h)
        model(x).sum().backward()
        (grad,) = torch.autograd.grad(model(x).exp().sum(), x, create_graph=True)
        grad.square().sum().backward()
        debugger.stop()
        debugger.step()


class Fails(nn.Module):
    """Raises in the middle, or returns what was never seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, fail: bool) -> Tensor:
        x = self.a(x)
        if fail:
            raise ValueError("as it\nis")
        return self.b(x)


def raised(folder: Path, **keys: Any) -> None:
    """Exceptions in a module, in a function, in backward; the run goes on."""
    torch.manual_seed(0)
    model, x = Fails(), torch.randn(2, WIDTH, requires_grad=True)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        for fail in (True, False):
            try:
                model.train(not fail)(x, fail=fail).sum().backward()
            except ValueError as error:
                print("raised", error)
        try:
            torch.matmul(x, torch.ones(3, 3))
        except RuntimeError as error:
            print("raised", type(error))

        def refuse(grad: Tensor) -> None:
            raise KeyError("hook")

        y = model.a(x)
        y.register_hook(refuse)
        try:
            model.b(y).sum().backward()
        except KeyError as error:
            print("raised", error)
        debugger.stop()
        debugger.step()


class Object:
    """A class that Probe does not know."""

    def __repr__(self) -> str:
        return "Object()"


def odd_values(folder: Path, **keys: Any) -> None:
    """Dtypes, layouts and values of every kind as arguments."""
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 24).reshape(4, 6)
    tensors = [
        *(x.to(kind) for kind in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64)),
        *(x.to(kind) for kind in (torch.int8, torch.uint8, torch.int64, torch.bool, torch.uint16)),
        x.to_sparse(), x.t(), x[:, ::2], x.expand(2, 4, 6), torch.empty(0, 3), torch.tensor(3.5), x.to("meta"),
        torch.tensor([1.0, float("nan"), float("inf"), -float("inf")]), torch.conj(x.to(torch.complex64)),
        nn.Parameter(x), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    ]  # fmt: skip
    values = [
        None, True, 3, 2**70, 1.5, float("nan"), 1j, "text \x1b\u2028", b"bytes", (1, [2, {"k": 3}]), {1, 2}, range(3),
        slice(1, None),
        torch.float32, torch.device("cpu"), torch.Size([1, 2]), np.float32(1.5), np.arange(6.0).reshape(2, 3),
        Object(), len,
        {"a": {2: x}}, [], {}, (),
    ]  # fmt: skip

    class Takes(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args[0] if args else None

    model = nn.ModuleDict({"takes": Takes()})
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        for value in [*tensors, *values]:
            model["takes"](value, 1, keyword=value)
        for tensor in tensors[:3]:
            torch.add(tensor, tensor)
            tensor.clone().add_(1)
        model["takes"](x, same=x, again=[x, x])
        torch.rand(3)
        torch.where(x > 0, x, -x)
        torch.split(x, 2)
        torch.max(x, dim=1)
        x @ x.t()
        x[0] + 1
        debugger.stop()
        debugger.step()


def threads(folder: Path, **keys: Any) -> None:
    """Eight threads, each with a module of its own and values that no other has."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(8)])
    barrier = threading.Barrier(len(model))

    def work(i: int) -> None:
        barrier.wait(30)
        for k in range(10):
            x = torch.full((i + 1, WIDTH), 1.0 + k, requires_grad=True)
            F.gelu(model[i](x)).sum().backward()

    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        in_threads(work, len(model))
        debugger.stop()
        debugger.step()


def stopped_twice(folder: Path, **keys: Any) -> None:
    """start and stop more than once in a step, further steps, a step without step()."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()), torch.ones(2, WIDTH)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        for _ in range(2):
            debugger.start(model)
            model(x).sum().backward()
            debugger.stop()
            model(x).sum().backward()
        debugger.step()
        debugger.start(model)
        torch.relu(x)
        debugger.stop()


def saved(folder: Path, **keys: Any) -> None:
    """Level debug: values and their gradients, through the debugger and through probe_save."""
    torch.manual_seed(0)
    with PrecisionDebugger(config_file(folder, level="debug", **keys)) as debugger:
        debugger.start()
        for _ in range(2):
            x = torch.randn(3, 4, requires_grad=True)
            y = PrecisionDebugger.save({"y": x * 2, "n": 3, "list": [x.exp(), None]}, "y")
            PrecisionDebugger.save(x, "x")
            PrecisionDebugger.save("text", "plain", save_backward=False)
            PrecisionDebugger.save(np.arange(3), "x")
            total = y["y"].exp().sum() + y["list"][0].sum()
            total.backward(retain_graph=True)
            total.backward()
            PrecisionDebugger.step()
        debugger.stop()


def own_apis(folder: Path, **keys: Any) -> None:
    """module_dump, a function of the user's, views, a model in a list."""
    torch.manual_seed(0)
    models = [nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    x = torch.ones(2, WIDTH)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.register_custom_api(F, "silu")
        debugger.start(models)
        F.silu(models[0](x)).view(-1).sum().backward()
        debugger.module_dump(models[1], "mine")
        models[1](x).sum().backward()
        debugger.module_dump_end()
        models[1](x).sum().backward()
        debugger.stop()
        debugger.step()


def compiled(folder: Path, **keys: Any) -> None:
    """A region of torch.compile, as one call and eager; vmap and grad of torch.func."""
    torch.manual_seed(0)
    model, x = nn.Linear(WIDTH, WIDTH), torch.ones(2, WIDTH)
    region = torch.compile(lambda x: model(x).relu(), backend="eager")
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        region(x).sum().backward()
        torch.func.vmap(torch.sin)(x)
        torch.func.grad(lambda x: torch.sin(x).sum())(x)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(x)
        debugger.stop()
        debugger.step()


def rank(folder: Path) -> None:
    """One of two processes: collectives, async ones too."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", store=dist.FileStore(str(folder / "store"), 2), rank=int(os.environ["RANK"]), world_size=2
    )
    torch.manual_seed(int(os.environ["RANK"]))
    model = nn.Linear(WIDTH, WIDTH)
    with PrecisionDebugger(str(folder / "config.json")) as debugger:
        debugger.start(model)
        x = model(torch.randn(2, WIDTH)).detach()
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        parts = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(parts, x)
        dist.broadcast(x, src=1)
        dist.barrier()
        model(x).sum().backward()
        debugger.stop()
        debugger.step()
    dist.destroy_process_group()


def ranks(folder: Path, **keys: Any) -> None:
    """Two ranks."""
    config_file(folder, **keys)
    command = [sys.executable, __file__, "--child", "ranks", str(folder)]
    running = [
        subprocess.Popen(
            command, env={**os.environ, "RANK": str(i), "WORLD_SIZE": "2"}, stderr=subprocess.DEVNULL
        )
        for i in range(2)
    ]
    print("ranks ended with", [process.wait(120) for process in running])
    (folder / "store").unlink(missing_ok=True)


class Kills(torch.autograd.Function):
    """The identity, whose backward kills the process."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return grad


def killed(folder: Path, where: str = "call", **keys: Any) -> None:
    """Die in the second step's backward pass. where: in a call, or in one after other passes."""
    torch.manual_seed(0)
    model = Net(False if where == "checkpoint" else None)
    with PrecisionDebugger(config_file(folder, **keys)) as debugger:
        debugger.start(model)
        loss_of(model).backward()
        debugger.stop()
        debugger.step()
        debugger.start(model)
        if where == "passes":
            loss_of(model).backward(retain_graph=True)
        x = model.embed(batch())
        h = model.blocks[0](Kills.apply(model.nested({"x": x, "more": [x, x]}).mixed))
        if where == "checkpoint":
            h = checkpoint(model.blocks[1], h, use_reentrant=False)
        if where == "forward":
            model.head.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        model.head(h).sum().backward()


def killed_saves(folder: Path, **keys: Any) -> None:
    """Die with one gradient of two there."""
    torch.manual_seed(0)
    with PrecisionDebugger(config_file(folder, level="debug", **keys)) as debugger:
        debugger.start()
        x = torch.randn(3, 4, requires_grad=True)
        a = PrecisionDebugger.save({"a": Kills.apply(x * 2), "b": 3}, "a")
        PrecisionDebugger.save(a["a"].exp(), "b").sum().backward()


KILLED: dict[str, Case] = {
    "killed_statistics": killed,
    "killed_passes": partial(killed, where="passes", level="L1"),
    "killed_checkpoint": partial(killed, where="checkpoint"),
    "killed_forward": partial(killed, where="forward", level="L0", summary_mode="md5"),
    "killed_tensor": partial(killed, task="tensor"),
    "killed_late": partial(killed, async_dump=True),
    "killed_saves": partial(killed_saves, task="tensor"),
}
SCOPE = ["Module.blocks.0.Block.forward.0", "Module.nested.Nested.forward.0"]
SCOPE_L1 = ["Functional.linear.1.backward", "Functional.linear.0.backward"]
CASES: dict[str, Case] = {
    **of_training(trained),
    "tensor_L1_md5": partial(trained, task="tensor", level="L1", steps=1, summary_mode="md5"),
    "saved": saved,
    "saved_tensor": partial(saved, task="tensor"),
    "checkpointed": partial(trained, checkpointed=False, steps=1),
    "checkpointed_reentrant": partial(trained, checkpointed=True, steps=1),
    "checkpointed_tensor_L1": partial(trained, checkpointed=False, task="tensor", level="L1", steps=1),
    "threads": threads,
    "threads_L1_md5": partial(threads, level="L1", summary_mode="md5"),
    "async_checkpointed": partial(trained, async_dump=True, checkpointed=True, level="L1", steps=1),
    "async_accumulated": partial(accumulated, async_dump=True),
    "list": partial(trained, list=["blocks.1", "linear"], steps=1),
    "scope": partial(trained, scope=SCOPE, steps=1),
    "scope_L1": partial(trained, level="L1", scope=SCOPE_L1, steps=1),
    "outputs": partial(trained, data_mode=["output"], steps=1),
    "backward": partial(trained, data_mode=["backward"], tensor_list=["linear.1"], steps=1),
    "no_extra_info": partial(trained, extra_info=False, steps=1),
    "accumulated": accumulated,
    "accumulated_tensor": partial(accumulated, task="tensor"),
    "raised": raised,
    "raised_L1_tensor": partial(raised, level="L1", task="tensor"),
    "odd_values": odd_values,
    "odd_values_tensor": partial(odd_values, task="tensor"),
    "odd_values_async_md5": partial(odd_values, async_dump=True, summary_mode="md5"),
    "stopped_twice": stopped_twice,
    "own_apis": own_apis,
    "compiled": compiled,
    "compiled_eager": partial(compiled, compiled="eager"),
    "ranks": ranks,
    "ranks_tensor": partial(ranks, level="L1", task="tensor"),
    **{name: partial(recovered, script=__file__, name=name) for name in KILLED},
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("always")
    main(__file__, CASES, {**KILLED, "ranks": rank})
