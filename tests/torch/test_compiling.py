"""torch.compile beside Probe: the run never breaks; what is inside a compiled region is said to be unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from dumping import capture, opened, records, report
from probe_torch import compiling
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.inner(self.a(x)))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def step(model: Any, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_submodule(backend: str, level: str, tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    net.inner.compile(backend=backend)
    truth = step(net, x)
    results: list[list[Tensor]] = []
    names = capture(tmp_path, lambda: results.append(step(net, x)), net, level=level)
    assert all(torch.equal(a, b) for a, b in zip(truth, results[0], strict=True))
    if level != "L1":
        assert {"Module.a.Linear.forward.0", "Module.b.Linear.backward.0"} <= names.keys()
        assert any(n.startswith("Module.inner.") and ".forward." in n for n in names), "L0 around it works"
    said = report(tmp_path / "dump")
    assert not said["faults"]
    assert any("compile" in str(entry).lower() for entry in said["not_seen"])
    assert all(torch.equal(a, b) for a, b in zip(truth, step(net, x), strict=True))


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_compiled_model(level: str, tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    whole = torch.compile(net, backend="eager")
    truth = step(whole, x)
    results: list[list[Tensor]] = []
    capture(tmp_path, lambda: results.append(step(whole, x)), whole, level=level)
    assert all(torch.equal(a, b) for a, b in zip(truth, results[0], strict=True))
    assert any("compile" in str(entry).lower() for entry in report(tmp_path / "dump")["not_seen"])


def test_compiled_for_the_first_time_while_started(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    truth = step(net, x)
    net.inner = torch.compile(net.inner, backend="eager")  # type: ignore[assignment]
    results: list[list[Tensor]] = []
    with opened(tmp_path) as debugger:
        for _ in range(2):
            debugger.start(net)
            results.append(step(net, x))
            debugger.stop()
            debugger.step()
    for result in results:
        assert all(torch.equal(a, b) for a, b in zip(truth, result, strict=True))
    assert "Module.b.Linear.forward.0" in records(tmp_path / "dump", 1)


def test_a_compiled_function_is_right_after_stop(tmp_path: Path) -> None:
    """Code compiled while Probe's patches were there must not keep them."""
    compiled = torch.compile(lambda t: torch.nn.functional.gelu(t) * 2, backend="eager", fullgraph=True)
    x = torch.randn(5)
    expected = torch.nn.functional.gelu(x) * 2

    def work() -> None:
        assert torch.equal(compiled(x), expected)

    capture(tmp_path, work, level="L1")
    before = sorted(p.stat().st_size for p in (tmp_path / "dump").rglob("*.json"))
    assert torch.equal(compiled(x), expected)
    assert sorted(p.stat().st_size for p in (tmp_path / "dump").rglob("*.json")) == before


def test_what_asks_whether_torch_compiles_asks_in_one_place() -> None:
    """A torch that doesn't mark its sessions (2.6) would else let Dynamo's own calls pass for the model's."""
    source = Path(compiling.__file__)
    asking = [p.name for p in source.parent.rglob("*.py") if "torch.compiler.is_compiling" in p.read_text()]
    assert set(asking) - {"callers.py"} == {source.name}  # callers.py speaks of it


def test_a_session_is_known_from_inside(tmp_path: Path) -> None:
    said: list[bool] = []

    def backend(graph: Any, inputs: Any) -> Any:
        said.append(compiling.is_compiling())
        return graph.forward

    assert not compiling.is_compiling()
    torch.compile(torch.nn.functional.gelu, backend=backend)(torch.randn(3))
    assert said == [True]
    assert not compiling.is_compiling()
