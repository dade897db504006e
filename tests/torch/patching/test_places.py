"""A user's patch of every kind of place that is replaced in torch."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.utils.checkpoint as checkpoint
from contract_places import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_places import Kind, Saw
from documents import Json
from probe_torch.dropout import no_dropout
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.profiler import record_function
from torch.utils.data import DataLoader, TensorDataset

X = torch.linspace(-1, 1, 4).reshape(2, 2)
#: What torch runs a checkpoint by; since torch 2.15 the older name calls the newer one.
GENERATOR = next(
    name for name in reversed(dir(checkpoint)) if name.startswith("_checkpoint_without_reentrant")
)
MODEL = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.0)


def named(prefix: str) -> Callable[[dict[str, Json], Json], int]:
    return lambda records, report: sum(name.startswith(prefix) and "forward" in name for name in records)


def left_out(reason: str) -> Callable[[dict[str, Json], Json], int]:
    return lambda records, report: report["counts"]["left_out"].get(reason, 0)


def backward() -> None:
    MODEL(X).sum().backward()


def checkpointed(reentrant: bool) -> Callable[[], None]:
    def use() -> None:
        x = X.clone().requires_grad_()
        checkpoint.checkpoint(MODEL[1], x, use_reentrant=reentrant).sum().backward()

    return use


class Applying:
    """A user's stand-in for CheckpointFunction."""

    def __init__(self, inner: Any, saw: Saw) -> None:
        self.inner, self.saw = inner, saw

    def apply(self, *args: Any) -> Any:
        self.saw()
        return self.inner.apply(*args)


def pickling(inner: Any, saw: Saw) -> Any:
    """A user's stand-in for pickle.Pickler."""

    class Pickler(inner):  # type: ignore[misc]
        def dump(self, obj: Any) -> None:
            saw()
            super().dump(obj)

    return Pickler


def fake() -> None:
    with FakeTensorMode():
        pass


def waited() -> None:
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work is not None
    work.wait()


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + 1


KINDS = {
    "a function": Kind(F, "relu", lambda: F.relu(X), named("Functional.relu")),
    "a function of C": Kind(torch, "tanh", lambda: torch.tanh(X), named("Torch.tanh")),
    "an inherited method": Kind(torch.Tensor, "sigmoid", lambda: X.sigmoid(), named("Tensor.sigmoid")),
    "an operator": Kind(torch.Tensor, "__add__", lambda: X + X, named("Tensor.__add__")),
    "a composite function": Kind(
        torch, "lu", lambda: torch.lu(torch.eye(2)), named("Torch.lu.")
    ),
    "modules": Kind(nn.Module, "__call__", lambda: MODEL(X), named("Module.1.0.Linear"), MODEL),
    "reentrant checkpoints": Kind(
        checkpoint, "CheckpointFunction", checkpointed(True), named("Module.1.0.Linear"), MODEL, Applying
    ),
    "checkpoints": Kind(checkpoint, GENERATOR, checkpointed(False), named("Module.1.0.Linear"), MODEL),
    "collectives": Kind(dist, "all_reduce", lambda: dist.all_reduce(torch.ones(2)), named("Distributed.all_reduce")),
    "waits": Kind(dist.Work, "wait", waited, named("Distributed.all_reduce")),
    "collectives of a group": Kind(dist.ProcessGroup, "allreduce", lambda: dist.all_reduce(torch.ones(2))),
    "operators of torch.ops": Kind(torch._ops.OpOverloadPacket, "__call__", lambda: torch.ops.aten.relu(X)),
    "a step begins": Kind(record_function, "__enter__", OPTIMIZER.step),
    "a step ends": Kind(record_function, "__exit__", OPTIMIZER.step),
    "clipping": Kind(nn.utils, "clip_grad_value_", lambda: nn.utils.clip_grad_value_(MODEL.parameters(), 1.0)),
    "printing": Kind(torch._tensor_str, "_str", lambda: repr(torch.zeros(0)), left_out("printing")),
    "loading data": Kind(DataLoader, "__iter__", lambda: iter(DataLoader(TensorDataset(X))), left_out("loading data")),
    "copies": Kind(copy, "deepcopy", lambda: copy.deepcopy(X)),
    "shallow copies": Kind(copy, "copy", lambda: copy.copy(MODEL)),
    "pickles": Kind(pickle, "dumps", lambda: pickle.dumps([1])),
    "picklers": Kind(pickle, "Pickler", lambda: pickle.Pickler(io.BytesIO()).dump([1]), around=pickling),
    "unpickled": Kind(pickle, "loads", lambda: pickle.loads(b"N.")),
    "saving": Kind(torch, "save", lambda: torch.save(X, io.BytesIO())),
    "fx": Kind(torch.fx, "symbolic_trace", lambda: torch.fx.symbolic_trace(nn.Tanh())),
    "fake tensors": Kind(FakeTensorMode, "__enter__", fake),
    "fake tensors end": Kind(FakeTensorMode, "__exit__", fake),
    "dropout": Kind(torch, "dropout", lambda: torch.dropout(X, 0.5, True), holding=no_dropout),
    "dropout of modules": Kind(torch._VF, "dropout", lambda: F.dropout(X), holding=no_dropout),
}  # fmt: skip

UNLIKE = (
    "a function of C", "an inherited method", "an operator", "modules", "reentrant checkpoints", "waits",
    "operators of torch.ops", "picklers", "fx", "dropout",
)  # fmt: skip


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    found = KINDS[request.param]
    if found.owner in (dist, dist.Work, dist.ProcessGroup):
        request.getfixturevalue("one_process")
    return found
