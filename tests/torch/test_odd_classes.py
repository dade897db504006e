"""Classes of the user's that are not what they seem: the run stays as it is, and nothing wrong is recorded of them."""

from __future__ import annotations

import dataclasses
import enum
import os
import signal
import time
from collections import UserDict
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from dumping import capture, dumped, records, report
from launching import FORKS
from probe_format.errors import UsageError
from probe_torch import PrecisionDebugger, perturb, plan
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

PROXY = """
import sys
from unittest.mock import Mock
import torch
from probe_torch import PrecisionDebugger
from torch import nn

class Net(nn.Module):
    def forward(self, x, other):
        return x * 2

debugger, net = PrecisionDebugger(dump_path=sys.argv[1], level="mix", task="tensor"), nn.Sequential(Net())
with debugger.one_step(net):
    print(net[0](torch.ones(2), Mock(spec=torch.Tensor)).tolist())
"""


def test_what_says_that_it_is_a_tensor_is_described_as_what_it_is(tmp_path: Path) -> None:
    """Torch reads the memory of whatever calls its class a tensor."""
    assert FORKS.run("-c", PROXY, str(tmp_path / "dump")).stdout == "[2.0, 2.0]\n"
    x, other = records(tmp_path / "dump")["Module.0.Net.forward.0"]["input_args"]
    assert x["Max"] == 1.0 and other["type"] == "unittest.mock.Mock" and "unsupported" in other


class Key(str, enum.Enum):  # noqa: UP042 - whose str() is not the key
    X = "x"
    MASK = "mask"


def test_keywords_may_be_members_of_an_enum(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
            return {Key.X: self.layer(x) * mask}

    model, given = nn.Sequential(Net()), {Key.X: torch.ones(2, 3), Key.MASK: torch.zeros(2, 3)}
    data = capture(tmp_path, lambda: model[0](**given)["x"].sum().backward(), model, level="L0")
    call = data["Module.0.Net.forward.0"]
    assert list(call["input_kwargs"]) == ["x", "mask"] and list(call["output"]) == ["x"]
    assert "Module.0.Net.backward.0" in data and not report(tmp_path / "dump")["counts"]["failed"]


def test_a_keyword_may_be_called_module(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor, module: str) -> Tensor:
            return self.layer(x)

    model = nn.Sequential(Net())
    keys = {"task": "watch", "list": ["Net"], "when": [lambda step: True], "then": {"level": "mix"}}
    with (
        PrecisionDebugger(dump_path=tmp_path, **keys) as debugger,
        pytest.warns(RuntimeWarning, match="meets"),
    ):
        for _ in range(2):
            with debugger.one_step(model):
                model[0](torch.ones(1, 2), module="a").sum().backward()


@pytest.mark.parametrize("same", [False, True])
def test_a_plan_refuses_a_model_whose_copy_shares_something(same: bool, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def __deepcopy__(self, memo: Any) -> Net:
            return self if same else Net(self.layer)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    net = nn.Sequential(Net(nn.Linear(2, 2)))
    with pytest.raises(UsageError, match="a copy of it shares 0" + ("" if same else r"\.layer")):
        plan(net, {"level": "L0", "dump_path": str(tmp_path / "d")}, torch.ones(1, 2))
    assert all(p.grad is None for p in net.parameters())


class Scaled(Tensor):
    """Its numbers are not those of ``elem``."""

    elem: Tensor

    @staticmethod
    def __new__(cls, elem: Tensor, shape: tuple[int, ...]) -> Scaled:
        made = torch.Tensor._make_wrapper_subclass(cls, shape)
        made.elem = elem
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["elem"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0]


def test_a_tensor_inside_of_another_shape_or_dtype_has_no_numbers_of_the_whole(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            return torch.ones(1)

    model = nn.Sequential(Net())
    given = [Scaled(torch.ones(1), (3,)), Scaled(torch.ones(3).char(), (3,)), Scaled(torch.ones(3), (3,))]
    data = capture(tmp_path, lambda: model[0](*given), model, level="L0")
    described = data["Module.0.Net.forward.0"]["input_args"]
    assert [each["Max"] for each in described] == [None, None, 1.0]
    assert ["hides its data" in each.get("unsupported", "") for each in described] == [True, True, False]


class Op(NamedTuple("Pair", [("function", Any), ("by", float)])):
    """A named tuple with attributes."""


def test_what_holds_a_function_keeps_its_attributes(tmp_path: Path) -> None:
    """Where it was made while a step was dumped, it is made again with the original in it."""
    held: list[Any] = []

    def work() -> None:
        op = Op(F.relu, 2.0)
        op.name = "first"
        held.extend([op, time.struct_time([F.relu, *range(8)])])

    capture(tmp_path, work, level="L1")
    assert held[0] == (F.relu, 2.0) and vars(held[0]) == {"name": "first"}


class Items(list[Any]):
    scale = 1.0


class Pair(tuple[Any, ...]):
    """A tuple with attributes, made of two things."""

    def __new__(cls, one: Any, other: Any) -> Pair:
        return tuple.__new__(cls, (one, other))


def test_perturb_keeps_the_state_of_lists_and_tuples() -> None:
    items, pair = Items([torch.ones(2)]), Pair(torch.ones(2), 3)
    items.scale, pair.name = 100.0, "a"
    moved, other = perturb([items, pair])
    assert type(moved) is Items and moved.scale == 100.0 and not torch.equal(moved[0], items[0])
    assert (
        type(other) is Pair and other.name == "a" and other[1] == 3 and torch.equal(items[0], torch.ones(2))
    )


class Unhashable(type):
    """A metaclass whose classes are no keys."""

    def __eq__(cls, other: object) -> bool:
        return cls is other


class UnhashableTensors(torch._C._TensorMeta):  # type: ignore[misc]
    def __eq__(cls, other: object) -> bool:
        return cls is other


@dataclasses.dataclass
class Answer(metaclass=Unhashable):
    value: Tensor


class Bag(list[Any], metaclass=Unhashable):
    pass


class Marked(Tensor, metaclass=UnhashableTensors):
    pass


def test_a_class_may_have_no_hash(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor, *more: Any) -> Answer:
            return Answer(self.layer(x))

    model, x, answered = nn.Sequential(Net()), torch.ones(1, 2), []

    def work() -> None:
        model[0](x, Answer(x), Bag([x]), [Answer(x)], {"a": Bag([x])}).value.sum().backward()
        answered.append(type(torch.add(x.as_subclass(Marked), 1)))

    data = capture(tmp_path, work, model, level="mix")
    net = data["Module.0.Net.forward.0"]
    _, one, bag, inside, keyed = net["input_args"]
    assert [e["Max"] for e in (one["value"], bag[0], inside[0]["value"], keyed["a"][0])] == [1.0] * 4
    assert list(net["output"]) == ["value"] and "Module.0.Net.backward.0" in data
    assert answered == [Marked] and data["Torch.add.0.forward"]["output"][0]["Max"] == 2.0


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
@pytest.mark.parametrize("name", ["grad_fn", "output_nr", "requires_grad", "_base", "shape"])
def test_a_tensor_may_raise_where_it_is_asked_for_its_gradient(
    name: str, error: type[Exception], tmp_path: Path
) -> None:
    def refuse(self: Tensor) -> Any:
        raise error("mine")

    secretive: Any = type("Secretive", (Tensor,), {name: property(refuse)})

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Any:
            made = self.layer(x.as_subclass(Tensor)).relu_().as_subclass(secretive)
            return made[:] if name == "_base" else made

    def work() -> None:
        x = torch.ones(1, 2, requires_grad=True).as_subclass(secretive)
        model[1](model[0](x)).as_subclass(Tensor).sum().backward()

    model = nn.Sequential(Net(), Net())
    data = capture(tmp_path, work, model, level="L0")
    assert "Module.0.Net.backward.0" in data and data["Module.1.Net.backward.0"]["input"][0]["Max"] == 1.0
    assert name == "requires_grad" or data["Module.0.Net.forward.0"]["output"][0]["shape"] == [1, 2]
    assert not report(tmp_path / "dump")["counts"]["failed"]


class Lazy(UserDict[str, Any]):
    """A mapping that computes what it is asked for."""

    def __init__(self, x: Tensor, layer: nn.Module) -> None:
        super().__init__(x=x)
        self.layer = layer

    def __getitem__(self, key: str) -> Any:
        return self.layer(torch.add(super().__getitem__(key), 1))


def test_what_a_look_calls_is_no_call_of_the_run(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, given: Any) -> Tensor:
            return torch.mul(given.data["x"], 2)

    model = nn.Sequential(Net(), nn.Linear(2, 2), nn.ReLU())
    data = capture(tmp_path, lambda: model[0](Lazy(torch.ones(1, 2), model[1])), model, level="mix")
    assert list(data) == ["Torch.mul.0.forward", "Module.0.Net.forward.0"]
    assert data["Module.0.Net.forward.0"]["input_args"][0]["x"]["shape"] == [1, 2]


class Other(Tensor):
    pass


class Named(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_mode_does_not_see_how_bounds_and_keys_are_described(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, *given: Any) -> None:
            return None

    model, one, mode = nn.Sequential(Net()), torch.tensor(1), Named()
    given = (slice(one, None), {one: 1}, {(one, 2): 1}, {frozenset([one]): 1}, one.as_subclass(Other))

    def work() -> None:
        with mode:
            model[0](*given, {given[-1]: 1}, slice(given[-1], None))

    data = capture(tmp_path, work, model, level="L0")
    bound, key, *_ = data["Module.0.Net.forward.0"]["input_args"]
    assert not mode.seen and bound["value"] == [1, None, None] and list(key) == ["tensor(1)"]


@pytest.mark.parametrize("way", ["interrupt", "handler", "handler of any signature", "own"])
def test_what_the_run_would_have_got_without_a_look_gets_through(way: str, tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, given: Any) -> None:
            return None

    def handler(number: int, frame: Any) -> None:
        raise SystemExit(number)

    class Busy(UserDict[str, Any]):
        def items(self) -> Any:
            if way == "interrupt":
                raise KeyboardInterrupt
            if way == "own":
                raise SystemExit
            os.kill(os.getpid(), signal.SIGUSR1)
            return super().items()

    model = nn.Sequential(Net())
    before = signal.signal(signal.SIGUSR1, handler if way == "handler" else lambda *given: handler(*given))
    expected = KeyboardInterrupt if way == "interrupt" else SystemExit
    try:
        with dumped(tmp_path, model, level="L0"), nullcontext() if way == "own" else pytest.raises(expected):
            model[0](Busy(x=1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    told = report(tmp_path / "dump")["counts"]["unsupported"]
    assert any("SystemExit" in what for what in told) == (way == "own")


class Proxy:
    """What wrapt makes: it is as what it stands for in all but its type."""

    def __init__(self, inner: Any) -> None:
        self.__wrapped__ = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__wrapped__.__class__

    def __call__(self, *args: Any) -> Any:
        return self.__wrapped__(*args)


@pytest.mark.parametrize("root", [False, True])
def test_a_module_may_be_a_proxy_or_a_mock(root: bool, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Proxy(nn.Sequential(nn.Linear(2, 2)))
            self.mock = Mock(spec=nn.Module)

        def forward(self, x: Tensor) -> Any:
            self.mock(x)
            return self.inner(x)

    model: Any = nn.Sequential(Net())
    work = lambda: model[0](torch.ones(1, 2)).sum().backward()  # noqa: E731
    data = capture(tmp_path, work, Proxy(model) if root else model, level="mix")
    names = ["0.inner.0.Linear", "0.inner.Sequential", "0.Net"]
    assert [f"Module.{name}.forward.0" in data for name in names] == [True] * 3
    assert "Module.0.inner.0.Linear.parameters_grad" in data
    assert report(tmp_path / "dump")["not_seen"] == [{"what": "inside 0.mock", "why": "a Mock is no module"}]


_CALL = nn.Module.__call__


class Bound(nn.Linear):
    __call__ = nn.Module.__call__


class Saved(nn.Linear):
    def __call__(self, *args: Any) -> Any:
        return _CALL(self, *args)


def test_a_class_may_have_bound_the_call_of_modules(tmp_path: Path) -> None:
    model = nn.Sequential(Bound(2, 2), Bound(2, 2), Saved(2, 2), nn.Linear(2, 2))
    data = capture(tmp_path, lambda: model[2](model[0](torch.ones(1, 2))).sum().backward(), model, level="L0")
    assert {name for name in data if "forward" in name} == {"Module.0.Bound.forward.0"}
    assert "Module.0.Bound.backward.0" in data and vars(Bound)["__call__"] is nn.Module.__call__ is _CALL
    assert {each["what"]: each["why"] for each in report(tmp_path / "dump")["not_seen"]} == {
        "Module.1.Bound": "not called in this step",
        "Module.2.Saved": "no call was seen, of a class with a __call__ of its own",
        "Module.3.Linear": "not called in this step",
    }
