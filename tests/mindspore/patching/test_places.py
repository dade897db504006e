"""A user's patch of every kind of place that is replaced in MindSpore."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_places import *  # noqa: F403  the tests and fixtures that both frameworks have
from contract_places import Kind
from documents import Json
from mindspore import Tensor, nn, ops
from probe_mindspore.dropout import no_dropout
from probe_mindspore.patching.compile_hook import API

X = Tensor(np.linspace(-1, 1, 4, dtype=np.float32).reshape(2, 2))


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.act = nn.Dense(2, 2), ops.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        return self.act(self.dense(x))


NET = Net()
OPTIMIZER = nn.SGD(NET.trainable_params(), 0.0)
GRADIENTS = tuple(ops.zeros_like(p) for p in NET.trainable_params())
DROPOUT = ops.Dropout(0.5)


@ms.jit
def jitted(x):  # type: ignore[no-untyped-def]
    return x + 1


def named(prefix: str) -> Callable[[dict[str, Json], Json], int]:
    return lambda records, report: sum(name.startswith(prefix) and "forward" in name for name in records)


def left_out(reason: str) -> Callable[[dict[str, Json], Json], int]:
    return lambda records, report: report["counts"]["left_out"].get(reason, 0)


def compiled() -> None:
    def function(x):  # type: ignore[no-untyped-def]
        return ops.relu(x)

    ms.jit(function)(X)


def parser() -> Any:
    try:
        return importlib.import_module("mindspore.graph._parse")
    except ImportError:
        return importlib.import_module("mindspore._extends.parse")


KINDS = {
    "a function": Kind(ops, "relu", lambda: ops.relu(X), named("Functional.relu")),
    "a method": Kind(Tensor, "exp", lambda: X.exp(), named("Tensor.exp")),
    "an operator": Kind(Tensor, "__add__", lambda: X + X, named("Tensor.__add__")),
    "Cells": Kind(nn.Cell, "__call__", lambda: NET(X), named("Cell.dense.Dense"), NET),
    "Primitives": Kind(ops.Primitive, "__call__", lambda: NET(X), named("Primitive.act.ReLU"), NET, anew=True),
    "an optimizer": Kind(nn.Optimizer, "__call__", lambda: OPTIMIZER(GRADIENTS)),
    "printing": Kind(Tensor, "__repr__", lambda: repr(X), left_out("printing")),
    "making parameters": Kind(ms.Parameter, "set_data", lambda: OPTIMIZER.learning_rate.set_data(Tensor(0.0))),
    "jitted functions": Kind(API._JitExecutor, "__call__", lambda: jitted(X), named("Jit.jitted")),
    "copies": Kind(copy, "deepcopy", lambda: copy.deepcopy(X)),
    "pickles": Kind(pickle, "dumps", lambda: pickle.dumps([1])),
    "unpickled": Kind(pickle, "loads", lambda: pickle.loads(b"N.")),
    "checkpoints": Kind(ms, "load_param_into_net", lambda: ms.load_param_into_net(NET, {})),
    "names in sources": Kind(parser(), "resolve_symbol", compiled),
    "dropout": Kind(ops.Dropout, "__call__", lambda: DROPOUT(X), holding=no_dropout),
    "dropout made meanwhile": Kind(ops.Dropout, "__init__", lambda: ops.Dropout(0.25), holding=no_dropout),
}  # fmt: skip


UNLIKE = (
    "a method", "an operator", "Cells", "Primitives", "jitted functions", "checkpoints", "names in sources", "dropout",
    "dropout made meanwhile",
)  # fmt: skip


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]
