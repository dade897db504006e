"""torch.compile and TorchScript beside Probe: the run never breaks; what is inside of them is said to be unseen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import probe_analysis
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


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def dumped_step(folder: Path, model: Any, x: Tensor, truth: list[Tensor], **keys: Any) -> dict[str, Any]:
    """Return the records of a step that computes the truth, and of which nothing has failed."""
    found: list[list[Tensor]] = []
    names: dict[str, Any] = capture(folder, lambda: found.append(step(model, x)), model, **keys)
    assert same(truth, found[0])
    assert not report(folder / "dump")["faults"]
    return names


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_parts_in_torchscript(level: str, tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    net.a, net.inner = torch.jit.trace(net.a, x), torch.jit.script(net.inner)  # type: ignore[no-untyped-call]
    names = dumped_step(tmp_path, net, x, step(net, x), level=level)
    if level != "L1":
        for name in ("a.TopLevelTracedModule", "inner.RecursiveScriptModule", "b.Linear"):
            assert {f"Module.{name}.forward.0", f"Module.{name}.backward.0"} <= names.keys()
    unseen = {entry["what"]: entry["why"] for entry in report(tmp_path / "dump")["not_seen"]}
    assert {"inside a", "inside inner"} <= unseen.keys()
    if level != "L1":
        assert unseen["Module.inner.0.RecursiveScriptModule"] == "inside TorchScript"


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_model_that_is_in_torchscript_itself(level: str, tmp_path: Path) -> None:
    """A frozen one has no parts any more by which it could be named."""
    net, x = torch.jit.freeze(torch.jit.script(Net().eval())), torch.randn(3, 4)  # type: ignore[no-untyped-call]
    capture(tmp_path / "one", lambda: net(x), net, level=level)
    assert report(tmp_path / "one" / "dump")["not_seen"] == [
        {"what": "inside the whole model", "why": "TorchScript runs outside Python"}
    ]
    if level != "L1":
        capture(tmp_path / "two", lambda: net(x), [Net(), net], level=level)
        assert "inside 1" in {one["what"] for one in report(tmp_path / "two" / "dump")["not_seen"]}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize(("part", "backend"), [("inner", "eager"), ("inner", "aot_eager"), ("all", "eager")])
def test_a_compiled_model_or_a_part_of_it(part: str, backend: str, level: str, tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    model: Any = torch.compile(net, backend=backend) if part == "all" else net
    if part == "inner":
        net.inner.compile(backend=backend)
    truth = step(model, x)
    names = dumped_step(tmp_path, model, x, truth, level=level)
    if level != "L1" and part == "inner":
        assert {"Module.a.Linear.forward.0", "Module.b.Linear.backward.0"} <= names.keys()
        assert any(n.startswith("Module.inner.") and ".forward." in n for n in names), "L0 around it works"
    assert any("compile" in str(entry).lower() for entry in report(tmp_path / "dump")["not_seen"])
    assert "_modules" not in str(report(tmp_path / "dump")["not_seen"])  # what is compiled is registered
    assert same(truth, step(model, x))


def test_what_is_made_of_the_model_is_called_and_the_model_is_given(tmp_path: Path) -> None:
    """Nothing of it is seen, so the report says what to give."""
    net, x = Net(), torch.randn(3, 4)
    made = torch.compile(net, backend="eager")
    with opened(tmp_path, level="L0") as debugger, debugger.one_step(net):
        made(x)
    told = {one["why"] for one in report(tmp_path / "dump")["not_seen"] if one["what"].startswith("Module.")}
    assert told == {
        "not called in this step: if what torch.compile made of the model was called instead, give that to start()"
    }


def test_compiled_for_the_first_time_while_started(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    truth = step(net, x)
    net.inner = torch.compile(net.inner, backend="eager")  # type: ignore[assignment]
    results: list[list[Tensor]] = []
    with opened(tmp_path) as debugger:
        for _ in range(2):
            with debugger.one_step(net):
                results.append(step(net, x))
    assert all(same(truth, result) for result in results)
    assert "Module.b.Linear.forward.0" in records(tmp_path / "dump", 1)
    assert "_modules" not in str(report(tmp_path / "dump")["not_seen"])


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


# -- compiled: eager ------------------------------------------------------------------------------------------


class Compiles:
    """A backend that counts what it compiles, and what runs of it; ``wrong`` makes the numbers a little larger."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.graphs = self.runs = 0
        self.wrong = wrong

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return [out * (1 + self.wrong) if self.wrong else out for out in graph(*args)]

        return run


class Inner(nn.Sequential):
    """torch's own Sequential would be passed over by `compile()`, which skips code of torch's."""

    def forward(self, x: Tensor) -> Tensor:
        for module in self:
            x = module(x)
        return x


def with_inner() -> Net:
    net = Net()
    net.inner = Inner(*net.inner)
    return net


def stance() -> Any:
    seen: Any = torch.compiler.set_stance("default")
    seen.__exit__(None, None, None)
    return seen.prev.stance


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("whole", [False, True])
def test_eager_sees_what_is_inside_and_computes_what_an_eager_run_does(
    whole: bool, level: str, tmp_path: Path
) -> None:
    net, x, backend = with_inner(), torch.randn(3, 4), Compiles()
    truth = step(net, x)
    model: Any = torch.compile(net, backend=backend) if whole else net
    if not whole:
        net.inner.compile(backend=backend)
    step(model, x)
    compiled = backend.graphs, backend.runs
    assert compiled[0] and compiled[1]
    names = dumped_step(tmp_path, model, x, truth, level=level, compiled="eager")
    assert (backend.graphs, backend.runs) == compiled, "neither compiled nor run while dumped"
    if level != "L1":
        assert {"Module.inner.0.Linear.forward.0", "Module.inner.1.GELU.backward.0"} <= names.keys()
    if level != "L0":
        assert "Functional.gelu.0.forward" in names
    unseen = {entry["what"]: entry["why"] for entry in report(tmp_path / "dump")["not_seen"]}
    what = "functions" if level == "L1" else "the whole model" if whole else "inner"
    assert "another run" in unseen[f"the compiled code of {what}"]
    assert not [entry for entry in unseen if entry.startswith("inside")]
    assert same(truth, step(model, x))
    assert backend.graphs == compiled[0] and backend.runs > compiled[1], (
        "the compiled code runs again, not made anew"
    )
    assert stance() == "default"


def test_eager_changes_nothing_in_steps_that_are_not_dumped(tmp_path: Path) -> None:
    net, x, backend = with_inner(), torch.randn(3, 4), Compiles()
    net.inner.compile(backend=backend)
    step(net, x)
    torch._dynamo.utils.counters.clear()
    runs = []
    with opened(tmp_path, level="mix", compiled="eager", step=[1]) as debugger:
        for _ in range(4):
            debugger.start(net)
            assert stance() == ("force_eager" if len(runs) == 1 else "default")
            before = backend.runs
            step(net, x)
            runs.append(backend.runs - before)
            debugger.stop()
            assert stance() == "default"
            debugger.step()
    assert runs[1] == 0 and runs[0] == runs[2] == runs[3] > 0
    assert backend.graphs == 1 and not torch._dynamo.utils.counters["stats"], "nothing was compiled anew"


def test_not_seen_sets_no_stance(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    with opened(tmp_path, level="mix") as debugger:
        debugger.start(net)
        assert stance() == "default"
        step(net, x)
        debugger.stop()


def test_a_stance_of_the_users_comes_back(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 4)
    with torch.compiler.set_stance("eager_on_recompile"):
        capture(tmp_path / "a", lambda: step(net, x), net, compiled="eager")
        assert stance() == "eager_on_recompile"

        def breaks() -> None:
            raise KeyError("of the user's")

        with pytest.raises(KeyError):
            capture(tmp_path / "b", breaks, net, compiled="eager")
        assert stance() == "eager_on_recompile"
        with opened(tmp_path / "c", compiled="eager") as debugger:
            debugger.start(net)
            torch.compiler.set_stance("fail_on_recompile")
            debugger.stop()
            assert stance() == "fail_on_recompile", "what the user set meanwhile stays"
    assert stance() == "default"


def test_a_compiled_and_an_eager_step_differ_where_the_compiler_is_wrong(tmp_path: Path) -> None:
    """The borders of the region are in both dumps; the first call that differs is the region's."""
    net, x = with_inner(), torch.randn(3, 4)
    for wrong, verdict in ((0.0, "same"), (0.01, "different")):
        torch.compiler.reset()
        model, places = copy.deepcopy(net), [tmp_path / verdict / which for which in ("not_seen", "eager")]
        model.inner.compile(backend=Compiles(wrong))
        for place in places:
            place.mkdir(parents=True)
            capture(place, partial(model, x), model, level="L0", compiled=place.name)
        found = probe_analysis.diff(places[0] / "dump", places[1] / "dump")
        assert found.verdict.state == verdict
        if wrong:
            assert (
                "first number that differs after it is in Module.inner.Inner.forward.0"
                in found.verdict.sentence
            )
