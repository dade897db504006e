"""Every kind of value that a module may get: encoded as msprobe does, or better where msprobe loses it."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import math
import zlib
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


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 7


class Own:
    """An object of the user's that nobody can encode."""

    def __repr__(self) -> str:
        raise RuntimeError("not even this")

    __str__ = __repr__


class Hostile:
    """Raises at whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Sub(Tensor):
    pass


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


PLAIN: dict[str, tuple[Any, Callable[[Json], bool]]] = {
    "int": (5, is_type("int", value=5)),
    "float": (2.5, is_type("float", value=2.5)),
    "bool": (True, is_type("bool", value=True)),
    "str": ('hi"\n中', is_type("str", value='hi"\n中')),
    "surrogate": ("a\udc80b", lambda v: v["type"] == "str"),
    "none": (None, lambda v: v is None),
    "nan": (math.nan, is_type("float", value="NaN")),
    "inf": (math.inf, is_type("float", value="inf")),
    "ninf": (-math.inf, is_type("float", value=" -inf")),
    "bigint": (2**70, is_type("int", value=2**70)),
    "negative bigint": (-(2**70), is_type("int", value=-(2**70))),
    "complex": (1 + 2j, says("complex", "1", "2")),
    "bytes": (b"ab", says("bytes")),
    "ellipsis": (..., is_type("ellipsis", value="...")),
    "slice": (slice(1, None, 2), is_type("slice", value=[1, None, 2])),
    "slice of tensors": (slice(torch.tensor(1), torch.tensor(4)), is_type("slice", value=[1, 4, None])),
    "dtype": (torch.float16, is_type("torch.dtype", value="torch.float16")),
    "device": (torch.device("cpu"), says("torch.device", "cpu")),
    "size": (torch.Size([2, 3]), is_type("torch.Size", value=[2, 3])),
    "memory format": (torch.channels_last, is_type("torch.memory_format", format="channels_last")),
    "layout": (torch.strided, says("layout", "strided")),
    "generator": (torch.Generator(), says("Generator")),
    "empty list": ([], lambda v: v == []),
    "empty tuple": ((), lambda v: v == []),
    "empty dict": ({}, lambda v: v == {}),
    "set": ({1, 2}, says("set")),
    "frozenset": (frozenset({1}), says("frozenset")),
    "range": (range(3), says("range", "3")),
    "enum": (Colour.RED, says("Colour", "RED")),
    "int enum": (Level.HIGH, is_type("Level", value=7)),
    "object": (Own(), says("Own", "unsupported")),
    "hostile": (Hostile(), says("Hostile")),
    "function": (math.sin, says("sin")),
    "lambda": (lambda: 0, says("lambda")),
    "class": (Data, says("Data")),
    "decimal": (decimal.Decimal("1.50"), says("Decimal", "1.50")),
    "finfo": (torch.finfo(torch.float32), says("finfo")),
    "module": (nn.Linear(1, 1), says("Linear")),
    "np float32": (np.float32(1.5), is_type("float32", value=1.5)),
    "np float64": (np.float64(1.5), is_type("float64", value=1.5)),
    "np nan": (np.float32("nan"), is_type("float32", value="NaN")),
    "np int64": (np.int64(3), is_type("int64", value=3)),
    "np bool": (np.bool_(True), is_type("bool", value=True)),
    "np complex": (np.complex64(1 + 2j), says("complex64")),
    "np str": (np.str_("q"), is_type("str_", value="q")),
    "np datetime": (np.datetime64("2020-01-01"), says("datetime64")),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_values(kind: str, tmp_path: Path) -> None:
    value, right = PLAIN[kind]
    record = dump(value, tmp_path)
    assert len(record["input_args"]) == 1
    assert right(record["input_args"][0]), record["input_args"][0]
    assert right(record["input_kwargs"]["kw"]), record["input_kwargs"]
    if kind == "empty tuple":
        assert record["output"] == []
    elif kind == "size":
        assert record["output"] in (
            {"type": "torch.Size", "value": [2, 3]},
            [PLAIN["size"][0]],
            record["input_args"],
        )
    elif kind not in ("empty list", "empty dict"):
        assert right(record["output"][0]), record["output"]


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
    "clashing keys": ({1: 1, "1": 2}, lambda v: sorted(item["value"] for item in v.values()) == [1, 2]),
    "named tuple": (Point(1, X), lambda v: v["a"]["value"] == 1 and x_stats(v["b"])),
    "dataclass": (Data(X), lambda v: x_stats(v["x"]) and v["y"] == {"type": "int", "value": 3}),
    "model output": (Output(a=X, b=None), lambda v: x_stats(v["a"]) and v["b"] is None),
    "packed": (
        nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4), torch.tensor([3, 2]), enforce_sorted=False),
        lambda v: v["data"]["shape"] == [5, 4] and v["batch_sizes"]["shape"] == [3],
    ),
    "array": (
        np.arange(4, dtype="float32"),
        lambda v: (
            (v["type"], v["dtype"], v["shape"], v["Max"], v["Min"], v["Mean"])
            == ("numpy.ndarray", "float32", [4], 3.0, 0.0, 1.5)
            and math.isclose(v["Norm"], math.sqrt(14), rel_tol=1e-6)
        ),
    ),
    "int array": (np.arange(4), lambda v: v["dtype"] == "int64" and v["Max"] == 3 and v["Mean"] == 1.5),
    "bool array": (np.array([True, False]), lambda v: v["Max"] is True and v["Min"] is False),
    "text array": (np.array(["a", "bc"]), lambda v: v["dtype"] == "<U2" and v["Max"] is None),
    "object array": (np.array([{}, None], dtype=object), lambda v: v["shape"] == [2]),
    "empty array": (np.zeros((0, 3)), lambda v: v["shape"] == [0, 3] and v["Max"] is None),
    "0-d array": (np.array(2.0), lambda v: v["shape"] == [] and v["Norm"] == 2.0),
    "nan array": (np.array([math.nan, 1.0]), lambda v: v["Max"] == "NaN" and v["nan_count"] == 1),
    "half array": (
        np.arange(3, dtype="float16"),
        lambda v: math.isclose(v["Norm"], math.sqrt(5), rel_tol=1e-6),
    ),
}


@pytest.mark.parametrize("kind", NESTED)
def test_nested_values_and_arrays(kind: str, tmp_path: Path) -> None:
    value, right = NESTED[kind]
    record = dump(value, tmp_path)
    (argument,) = record["input_args"]
    assert right(argument), argument
    assert right(record["input_kwargs"]["kw"])
    # What a call returns is a list of its elements; fields keep their names.
    out = record["output"]
    assert right(out if isinstance(value, (list, tuple, dict, Data)) else out[0]), out


def test_a_value_that_contains_itself(tmp_path: Path) -> None:
    loop: list[Any] = [X]
    loop.append(loop)
    deep: Any = X
    for _ in range(500):
        deep = [deep]
    record = dump(loop, tmp_path / "a")
    assert x_stats(record["input_args"][0][0]) and "itself" in str(record["input_args"][0][1])
    assert "unsupported" in str(dump(deep, tmp_path / "b")["input_args"])


def bits(t: Tensor) -> str:
    raw = t.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if t.numel() else b""
    return f"{zlib.crc32(raw):08x}"


@pytest.mark.parametrize(
    "name",
    [
        *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    ],
)
def test_dtypes(name: str, tmp_path: Path) -> None:
    value = X.to(getattr(torch, name))
    (got,) = dump(value, tmp_path)["input_args"]
    assert x_stats(got, name), got
    assert got["md5"] == bits(value)


@pytest.mark.parametrize("name", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned(name: str, tmp_path: Path) -> None:
    value = torch.arange(6, dtype=torch.int64).to(getattr(torch, name))
    (got,) = dump(value, tmp_path)["input_args"]
    assert (got["Max"], got["Min"], got["Mean"]) == (5, 0, 2.5)
    assert math.isclose(got["Norm"], math.sqrt(55)) and got["md5"] == bits(value)


def test_integers_lose_nothing(tmp_path: Path) -> None:
    big = 2**62 + 1
    (got,) = dump(torch.tensor([big, -big]), tmp_path / "a")["input_args"]
    assert (got["Max"], got["Min"], got["Mean"]) == (big, -big, 0.0)
    (got,) = dump(torch.tensor([2**64 - 1], dtype=torch.uint64), tmp_path / "b")["input_args"]
    assert got["Max"] == 2**64 - 1


def test_bool_and_complex(tmp_path: Path) -> None:
    (got,) = dump(torch.tensor([True, False]), tmp_path / "a")["input_args"]
    assert got["Max"] is True and got["Min"] is False
    z = torch.complex(X, X)
    for i, value in enumerate((z, z.to(torch.complex128), z.conj(), torch.view_as_real(z)[..., 0])):
        (got,) = dump(value, tmp_path / str(i))["input_args"]
        if value.is_complex():
            assert math.isclose(got["Max"], 3 * math.sqrt(2), rel_tol=1e-6)
            assert math.isclose(number(got["Norm"]), math.sqrt(38), rel_tol=1e-6)
        else:
            assert x_stats(got)


def test_narrow_floats_do_not_overflow(tmp_path: Path) -> None:
    """msprobe's own norms here are Infinity and 316.0."""
    (got,) = dump(torch.full((2000,), 60000.0).half(), tmp_path / "a")["input_args"]
    assert math.isclose(got["Norm"], 60000 * math.sqrt(2000), rel_tol=1e-3) and "posinf_count" not in got
    (got,) = dump(torch.ones(100000).bfloat16(), tmp_path / "b")["input_args"]
    assert math.isclose(got["Norm"], math.sqrt(100000), rel_tol=1e-6) and got["Mean"] == 1.0
    (got,) = dump(torch.full((4,), 3e38), tmp_path / "c")["input_args"]
    assert math.isclose(got["Norm"], 6e38, rel_tol=1e-5) and math.isclose(got["Mean"], 3e38, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ([math.nan, 1.0, 2.0], {"Max": "NaN", "Min": "NaN", "Mean": "NaN", "Norm": "NaN", "nan_count": 1}),
        (
            [1.0, math.inf],
            {"Max": "inf", "Min": 1.0, "Mean": "inf", "Norm": "inf", "posinf_count": 1},
        ),
        ([1.0, -math.inf], {"Max": 1.0, "Min": " -inf", "Norm": "inf", "neginf_count": 1}),
        ([math.nan, math.nan], {"Max": "NaN", "nan_count": 2, "finite_max": None, "finite_min": None}),
        ([math.inf, -math.inf, 5.0, -7.0], {"finite_max": 5.0, "finite_min": -7.0, "nan_count": 0}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_what_is_not_finite(
    values: list[float], keys: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    (got,) = dump(torch.tensor(values, dtype=dtype), tmp_path)["input_args"]
    assert {key: got[key] for key in keys} == keys
    assert {"nan_count", "posinf_count", "neginf_count", "finite_max", "finite_min"} <= got.keys()


def test_finite_tensors_have_no_extra_keys(tmp_path: Path) -> None:
    (got,) = dump(X, tmp_path / "a")["input_args"]
    assert not {"nan_count", "finite_max", "zero_count"} & got.keys()
    (got,) = dump(X, tmp_path / "b", zero_count=True)["input_args"]
    assert got["zero_count"] == 1


@pytest.mark.parametrize("dtype", ["float32", "int64", "float64", "bfloat16", "bool", "complex64"])
def test_scalars(dtype: str, tmp_path: Path) -> None:
    value = torch.tensor(-2.5).to(getattr(torch, dtype))
    (got,) = dump(value, tmp_path)["input_args"]
    assert got["shape"] == [] and number(got["Norm"]) == abs(value.to(torch.complex64)).item()


def test_empty(tmp_path: Path) -> None:
    (got,) = dump(torch.zeros(0, 3), tmp_path)["input_args"]
    assert tensor(got, "float32", [0, 3]) and got["Max"] is None and got["Norm"] is None
    assert got["md5"] == "00000000"


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: X.t(),
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "offset": lambda: torch.arange(8.0)[3:7],
    "strided": lambda: torch.arange(20.0)[::3],
    "channels last": lambda: torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last),
    "negative bit": lambda: torch._neg_view(X),
    "parameter": lambda: nn.Parameter(X.clone()),
    "needs gradient": lambda: X.clone().requires_grad_(),
    "subclass": lambda: X.clone().as_subclass(Sub),
    "in inference mode": lambda: _inference(),
}


def _inference() -> Tensor:
    with torch.inference_mode():
        return X * 1


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layouts_and_flavours(kind: str, tmp_path: Path) -> None:
    value = LAYOUTS[kind]()
    plain = value.detach().clone().as_subclass(Tensor).resolve_neg().contiguous()
    (got,) = dump(value, tmp_path)["input_args"]
    assert tensor(got, "float32", list(value.shape)), got
    assert math.isclose(got["Norm"], plain.double().norm().item(), rel_tol=1e-6)
    assert (got["Max"], got["Min"]) == (plain.max().item(), plain.min().item())
    assert got["md5"] == bits(plain) and got["requires_grad"] is value.requires_grad


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


def test_a_tensor_is_left_as_it_was(tmp_path: Path) -> None:
    """float8 with the tensor task frees the user's storage in msprobe."""
    for i, dtype in enumerate((torch.float8_e4m3fn, torch.bfloat16, torch.float32)):
        value = X.to(dtype)
        version, pointer, before = value._version, value.data_ptr(), bits(value.clone())
        dump(value, tmp_path / str(i), task="tensor", summary_mode="statistics")
        assert (value._version, value.data_ptr(), bits(value.clone())) == (version, pointer, before)


@pytest.mark.parametrize("keys", [{}, {"summary_mode": "statistics", "task": "tensor"}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "float8_e5m2"])
def test_a_tensor_can_still_be_resized(dtype: str, keys: dict[str, Any], tmp_path: Path) -> None:
    """Tensor.numpy() pins the storage for good: FSDP2, which frees storages by resizing, then fails."""
    value = X.abs().to(getattr(torch, dtype))
    assert value.untyped_storage().resizable()
    dump(value, tmp_path, **keys)
    assert value.untyped_storage().resizable()
    value.untyped_storage().resize_(0)


@pytest.mark.parametrize(
    "key", ["a/b", "with blank", "中文", "..", "x" * 300, "a\x00b", "C:\\n"], ids=lambda k: ascii(k)[:20]
)
def test_any_key_makes_a_loadable_file(key: str, tmp_path: Path) -> None:
    record = dump({key: X}, tmp_path, task="tensor", summary_mode="statistics")
    name = record["input_args"][0][key]["data_name"]
    file = tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data" / name
    assert "/" not in name and len(name.encode()) <= 255
    assert torch.equal(torch.load(file, weights_only=True), X)


def test_files_hold_the_elements_and_no_more(tmp_path: Path) -> None:
    base = torch.arange(100_000.0)
    record = dump(base[10:20], tmp_path, task="tensor", summary_mode="statistics")
    file = tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data" / record["input_args"][0]["data_name"]
    assert file.stat().st_size < 4096
    back = torch.load(file, weights_only=True)
    assert torch.equal(back, base[10:20]) and type(back) is Tensor and not back.requires_grad
