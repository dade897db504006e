"""Every kind of value that a module may get: encoded as msprobe does, or better where msprobe loses it."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dumping import capture, number, report
from torch import Tensor, nn

Json = Any
X = torch.tensor([[0.0, 3.0, -2.0], [1.0, -1.0, 2.0]])
Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass
class Data:
    x: Tensor
    y: int = 3


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    pass


class Own:
    """An object of the user's that nobody can encode."""

    def __repr__(self) -> str:
        raise RuntimeError("not even this")

    __str__ = __repr__


class Hostile:
    """Raises at whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Sink(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else None


def dump(value: Any, folder: Path, **keys: Any) -> dict[str, Json]:
    """The record of a module that got the value as argument and as keyword, and returned it."""
    sink = nn.Sequential()
    sink.add_module("sink", Sink())
    keys = {"level": "L0", "summary_mode": "md5", **keys}
    data = capture(folder, lambda: sink.sink(value, kw=value), sink, **keys)
    record: dict[str, Json] = data["Module.sink.Sink.forward.0"]
    assert not report(folder / "dump")["faults"]
    return record


def tensor(value: Json, dtype: str, shape: list[int]) -> bool:
    return (
        value["type"] == "torch.Tensor"
        and value["dtype"] == f"torch.{dtype}"
        and value["shape"] == shape
        and {"Max", "Min", "Mean", "Norm", "requires_grad", "md5"} <= value.keys()
    )


def x_stats(value: Json, dtype: str = "float32", sign: int = 1) -> bool:
    high, low = sorted((3.0 * sign, -2.0 * sign), reverse=True)
    return (
        tensor(value, dtype, value["shape"])
        and (value["Max"], value["Min"]) == (high, low)
        and math.isclose(value["Mean"], 0.5 * sign)
        and math.isclose(value["Norm"], math.sqrt(19), rel_tol=1e-6)
        and value["requires_grad"] is False
    )


def is_type(name: str, **fields: Any) -> Callable[[Json], bool]:
    return lambda value: value == {"type": name, **fields}


def says(*words: str) -> Callable[[Json], bool]:
    """Better than msprobe's null: an object with its type, and the value or why there is none."""
    return lambda value: isinstance(value, dict) and "type" in value and all(w in str(value) for w in words)


#: What a walk alone makes of each value is in tests/format/test_values.py and tests/torch/tensors/test_walk.py.
PLAIN: dict[str, tuple[Any, Callable[[Json], bool]]] = {
    "surrogate": ("a\udc80b", lambda v: v["type"] == "str"),
    "none": (None, lambda v: v is None),
    "np datetime": (np.datetime64("2020-01-01"), says("datetime64")),
    "slice of tensors": (slice(torch.tensor(1), torch.tensor(4)), is_type("slice", value=[1, 4, None])),
    "memory format": (torch.channels_last, is_type("torch.memory_format", format="channels_last")),
    "generator": (torch.Generator(), says("Generator")),
    "object": (Own(), says("Own", "unsupported")),
    "hostile": (Hostile(), says("Hostile")),
    "module": (nn.Linear(1, 1), says("Linear")),
}


NESTED: dict[str, tuple[Any, Callable[[Json], bool]]] = {
    "list": (
        [1, X, [2, "x", X], None],
        lambda v: v[0] == {"type": "int", "value": 1} and x_stats(v[1]) and x_stats(v[2][2]) and v[3] is None,
    ),
    "tuple": ((1, (X, None)), lambda v: x_stats(v[1][0]) and v[1][1] is None),
    "dict": (
        {"k": X, "n": {"z": 1, 3: X}, (1, "t"): 2},
        lambda v: x_stats(v["k"]) and x_stats(v["n"]["3"]) and len(v) == 3,
    ),
    "named tuple": (Point(1, X), lambda v: v["a"]["value"] == 1 and x_stats(v["b"])),
    "dataclass": (Data(X), lambda v: x_stats(v["x"]) and v["y"] == {"type": "int", "value": 3}),
    "model output": (Output(a=X, b=None), lambda v: x_stats(v["a"]) and v["b"] is None),
    "packed": (
        nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4), torch.tensor([3, 2]), enforce_sorted=False),
        lambda v: v["data"]["shape"] == [5, 4] and v["batch_sizes"]["shape"] == [3],
    ),
}


@pytest.mark.parametrize("kind", [*PLAIN, *NESTED])
def test_values(kind: str, tmp_path: Path) -> None:
    value, right = {**PLAIN, **NESTED}[kind]
    record = dump(value, tmp_path)
    (argument,), out = record["input_args"], record["output"]
    # What a call returns is a list of its elements; fields keep their names.
    has_parts = issubclass(type(value), (list, tuple, dict, Data))  # what is hostile has no class to ask for
    for found in (argument, record["input_kwargs"]["kw"], out if has_parts else out[0]):
        assert right(found), found


def _fake() -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2, 3)


def _freed() -> Tensor:
    value = torch.arange(12.0)[3:9].view(2, 3)
    value.untyped_storage().resize_(0)
    return value


# msprobe raises in the user's forward for half of these.
UNUSUAL: dict[str, tuple[Callable[[], Tensor], list[int] | None]] = {
    "sparse": (lambda: X.to_sparse(), [2, 3]),
    "csr": (lambda: X.to_sparse_csr(), [2, 3]),
    "mkldnn": (lambda: X.to_mkldnn(), [2, 3]),
    "quantised": (lambda: torch.quantize_per_tensor(X, 0.5, 10, torch.quint8), [2, 3]),
    "meta": (lambda: X.to("meta"), [2, 3]),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), None),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        None,
    ),
    "e8m0": (lambda: torch.ones(2, 3).to(torch.float8_e8m0fnu), [2, 3]),
    "fake": (_fake, [2, 3]),
    "freed": (_freed, [2, 3]),
    "zero": (lambda: torch._efficientzerotensor((2, 3)), [2, 3]),  # type: ignore[attr-defined]
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_never_raise(kind: str, task: str, tmp_path: Path) -> None:
    if kind == "e8m0" and not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has no float8_e8m0fnu")
    make, shape = UNUSUAL[kind]
    value = make()
    keys = {"summary_mode": "statistics", "task": task}
    (got,) = dump(value, tmp_path, **keys)["input_args"]
    assert got["dtype"] == str(value.dtype) and (shape is None or got["shape"] == shape), got
    assert {"Max", "Min", "Mean", "Norm"} <= got.keys()
    if got["Norm"] is None:
        assert got.get("unsupported"), "no numbers, and no word why"
    if kind in ("sparse", "csr", "mkldnn"):
        assert got.get("unsupported") or number(got["Norm"]) == pytest.approx(math.sqrt(19))
    if kind == "quantised":
        assert (number(got["Max"]), number(got["Min"])) == (3.0, -2.0)


@pytest.mark.parametrize("keys", [{}, {"summary_mode": "statistics", "task": "tensor"}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "float8_e5m2"])
def test_a_tensor_can_still_be_resized(dtype: str, keys: dict[str, Any], tmp_path: Path) -> None:
    """Tensor.numpy() pins the storage for good: FSDP2, which frees storages by resizing, then fails.

    float8 with the tensor task frees the user's storage in msprobe.
    """
    value = X.abs().to(getattr(torch, dtype))
    assert value.untyped_storage().resizable()

    def state() -> tuple[int, int, list[Any]]:
        return value._version, value.data_ptr(), value.clone().view(torch.uint8).tolist()

    before = state()
    dump(value, tmp_path, **keys)
    assert state() == before
    assert value.untyped_storage().resizable()
    value.untyped_storage().resize_(0)
