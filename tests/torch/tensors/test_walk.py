"""One walk over a call's values: torch's own, and which code sees the user's modes."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_format import jsonio
from probe_format.write import Coverage
from probe_runtime.collect import Part, Walk
from probe_torch.tensors.leaf import TensorLeaf, TensorOptions
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Own(torch.Tensor):
    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(TensorLeaf(TensorOptions(tmp_path), Coverage(), lambda event: None), lambda why: None)


def _arguments(walk: Walk, *args: Any) -> tuple[Any, Any, list[Any]]:
    part = Part(walk, "r", "input", False, True, "input_args")
    text, form = part.arguments(args)
    return jsonio.loads(text), form, part.found


def test_values_of_torch(walk: Walk) -> None:
    values = [
        torch.float16,
        torch.device("cpu"),
        torch.Size([2, 3]),
        (2, 3),
        torch.strided,
        torch.finfo(torch.half),
    ]
    for _ in range(2):
        json, form, found = _arguments(walk, *values)
        assert [part.get("value") if isinstance(part, dict) else part for part in json] == [
            "torch.float16",
            "cpu",
            [2, 3],
            [{"type": "int", "value": 2}, {"type": "int", "value": 3}],
            "torch.strided",
            str(torch.finfo(torch.half)),
        ]
        assert form == [None, None, None, [None, None], None, None] and not found


def test_a_size_that_is_a_symbol(walk: Walk) -> None:
    env = ShapeEnv()
    symbol = env.create_unbacked_symint()
    for _ in range(2):
        json, _, _ = _arguments(walk, symbol, torch.Size([2]))
        assert json[0] == {"type": "torch.SymInt", "value": str(symbol)} and json[1]["value"] == [2]


def test_results_of_torch_are_lists_and_a_size_is_one_value(walk: Walk) -> None:
    part = Part(walk, "r", "output", False, True, "output")
    text, form, fields = part.results(torch.ones(2, 3).max(1))
    assert [t["dtype"] for t in jsonio.loads(text)] == ["torch.float32", "torch.int64"]
    assert (form, fields) == (2, False) and [path for path, _ in part.found] == [(0,), (1,)]
    text, form, fields = part.results(torch.Size([1]))
    assert jsonio.loads(text) == [{"type": "torch.Size", "value": [1]}] and (form, fields) == (1, False)


def test_the_users_containers_see_the_users_modes_and_probes_look_is_not_seen(walk: Walk) -> None:
    seen = collections.Counter[str]()

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[f"function {func.__name__}"] += 1
            return func(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[f"dispatch {func}"] += 1
            return func(*args, **(kwargs or {}))

    class Twice(collections.UserDict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return self.data[key] * 2

    t, own = torch.ones(2, requires_grad=True), torch.ones(2).as_subclass(Own)
    Own.seen.clear()
    view = t.view(2, 1)
    for times in (1, 2):
        with Functions(), Dispatched():
            json, form, found = _arguments(walk, t, [own, view], Twice(a=t), t, own)
        assert seen == {"function mul": times, "dispatch aten.mul.Tensor": times} and not Own.seen
    assert json[2]["a"]["Max"] == 2 and json[0]["Max"] == json[1][0]["Max"] == 1
    assert form == [None, [None, None], {"a": None}, None, None]
    assert [path for path, _ in found] == [(0,), (1, 0), (1, 1), (2, "a"), (3,), (4,)]
