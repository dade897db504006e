"""Jitted functions that get Cells, dicts and other nests have the records of PyNative inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ms = pytest.importorskip("mindspore")

from compiled_runs import otherwise, uncopied  # noqa: E402
from graph_nets import batch, build  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402
from mindspore_dumping import collected, records, report, trained  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def _first(net: nn.Cell, x: Tensor) -> Tensor:
    return net(x) * 2


def _last(x: Tensor, net: nn.Cell) -> Tensor:
    return net(x) * 2


def _between(net: nn.Cell, x: Tensor, other: nn.Cell, times: float) -> Tensor:
    return other(net(x)) * times


def _together(nets: tuple[nn.Cell, nn.Cell], x: Tensor) -> Tensor:
    return nets[1](nets[0](x)) * 2


def _mapped(net: nn.Cell, x: Tensor, more: dict[str, Any]) -> Tensor:
    return net(x) * more["k"]


def _deep(net: nn.Cell, x: Tensor, more: dict[str, Any]) -> Tensor:
    return net(x) * more["k"][1] + more["in"]["j"]


def _listed(net: nn.Cell, x: Tensor, more: Any) -> Tensor:
    return net(x) * more[0] + more[1]["j"]


#: name -> (function, its arguments made of the two Cells and of a tensor)
FORMS: dict[str, tuple[Callable[..., Any], Callable[[Any, Any, Tensor], tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "a Cell first": (_first, lambda a, b, x: ((a, x), {})),
    "a Cell by its name": (_last, lambda a, b, x: ((x,), {"net": a})),
    "two Cells and a number": (_between, lambda a, b, x: ((a, x, b, 2.0), {})),
    "a tuple of Cells": (_together, lambda a, b, x: (((a, b), x), {})),
    "a dict": (_mapped, lambda a, b, x: ((a, x, {"k": x * 2}), {})),
    "a mutable dict": (_mapped, lambda a, b, x: ((a, x, ms.mutable({"k": x * 2})), {})),
    "a deep dict": (_deep, lambda a, b, x: ((a, x, ms.mutable({"k": (x, x * 2), "in": {"j": x * 3}})), {})),
    "a mutable list": (_listed, lambda a, b, x: ((a, x, ms.mutable([x * 2, {"j": x * 3}])), {})),
    "a mutable tuple": (_listed, lambda a, b, x: ((a, x, ms.mutable((x * 2, {"j": x * 3}))), {})),
}  # fmt: skip


class Giving(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Dense(3, 3), nn.Dense(3, 3)

    def construct(self, x: Tensor) -> Tensor:
        args, keywords = self.given(self.a, self.b, x * 1)
        return self.call(*args, **keywords).sum()


def _net(form: str, *, jitted: bool) -> Giving:
    """The network with a function of its own: MindSpore's gradients of a jitted one may be zeros the second time."""
    net = build(Giving)
    function, given = FORMS[form]
    object.__setattr__(net, "given", given)
    object.__setattr__(net, "call", ms.jit(function) if jitted else function)
    return net


@pytest.mark.parametrize("form", FORMS)
def test_what_a_jitted_function_is_given_has_the_records_of_pynative(form: str, tmp_path: Path) -> None:
    def recorded(path: Path, *, jitted: bool) -> list[bytes]:
        net = _net(form, jitted=jitted)
        with collected(path, net, level="L0", task="tensor"):
            return trained(net, batch())

    recorded(tmp_path / "pynative", jitted=False)
    assert recorded(tmp_path / "jit", jitted=True) == trained(_net(form, jitted=True), batch())
    graph = tmp_path / "jit/dump/graph"
    assert "Cell.a.Dense.backward.0" in records(graph)
    assert uncopied(graph, 1) == report(graph.parent)["faults"] == []
    # Of Parameters MindSpore 2.10 itself gives other gradients where a nest and a tensor have some (Limits).
    found = otherwise(graph, tmp_path / "pynative/dump")
    assert [name for name in found if "parameters_grad" not in name] == []
    assert "Cell.a.Dense" not in {item["what"] for item in report(graph)["not_seen"]}
