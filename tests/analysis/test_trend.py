"""Follow quantities of a real training, against norms that torch computes beside it; and draw them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from probe_analysis import Trend, export, trend
from probe_analysis.cli.trend import main
from probe_analysis.trend.picture import sparkline
from probe_format.errors import FormatError, UsageError
from rank_dumps import tensor, write

STEPS = 4
Truth = dict[tuple[str, str, int], float]


def noting(truth: Truth, name: str, step: int) -> Any:
    def hook(_: Any, __: Any, out: Any) -> None:
        truth["activations", f"{name}.output.0", step] = out.norm().item()

    return hook


@pytest.fixture(scope="module", params=["statistics", "tensor"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Truth, str]:
    """Train, and keep (quantity, name, step) -> the norm, by torch itself."""
    torch = pytest.importorskip("torch")
    from probe_torch import PrecisionDebugger

    folder = tmp_path_factory.mktemp(request.param)
    truth: Truth = {}
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with PrecisionDebugger(dump_path=str(folder), level="L0", task=request.param) as debugger:
        for step in range(STEPS):
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            hooks = [
                module.register_forward_hook(noting(truth, name, step))
                for name, module in model.named_children()
            ]
            debugger.start(model)
            # The third step has a batch that is a hundred times larger.
            model(torch.randn(5, 6) * (100.0 if step == 2 else 1.0)).square().mean().backward()
            optimizer.step()
            debugger.stop()
            debugger.step()
            for name, p in model.named_parameters():
                truth["gradients", name, step] = p.grad.double().norm().item()
                truth["weights", name, step] = before[name].double().norm().item()
                truth["updates", name, step] = (p.detach().double() - before[name].double()).norm().item()
            optimizer.zero_grad()
            for hook in hooks:
                hook.remove()
    return folder, truth, request.param


@pytest.mark.parametrize("quantity", ["gradients", "weights", "activations", "updates"])
def test_values_are_those_that_torch_computes(trained: tuple[Path, Truth, str], quantity: str) -> None:
    folder, truth, task = trained
    found: Trend = trend(folder, quantity)  # type: ignore[arg-type]
    steps = range(STEPS - 1) if quantity == "updates" else range(STEPS)
    assert found.steps == tuple(steps)
    names = {name for what, name, _ in truth if what == quantity}
    assert names <= {series.name for series in found.series}
    exact = quantity != "updates" or task == "tensor"
    assert bool(found.notes) == (not exact)
    for series in found.series:
        for step in steps:
            own, right = series.of_step(step), truth.get((quantity, series.name, step))
            if right is None:
                continue  # the model's own output
            assert own is not None
            assert own == pytest.approx(right, rel=1e-5) if exact else own <= right * (1 + 1e-5)


@pytest.mark.parametrize("trained", ["tensor"], indirect=True)
def test_why_an_update_is_a_lower_bound(trained: tuple[Path, Truth, str], tmp_path: Path) -> None:
    """Tables have no values, and a file may be lost: neither was not saved."""
    pytest.importorskip("pyarrow")
    folder, _, _ = trained
    export(folder, tmp_path / "tables")
    shutil.copytree(folder, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost" / "step1" / "rank" / "dump_tensor_data")
    for name in ("tables", "lost"):
        (note,) = trend(tmp_path / name, "updates").notes
        assert note.startswith("Saved tensors cannot be read (Module.")
        assert "is missing" in note and "at least that" in note


def test_an_update_of_nothing_is_no_lower_bound(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from dumped_steps import dumped

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model[0].none = torch.nn.Parameter(torch.empty(0))
    dumped(tmp_path, lambda _: model(torch.ones(1, 2)), model, 2, task="tensor")
    found = trend(tmp_path, "updates")
    assert {series.name: series.points[0].value for series in found.series}["0.none"] is None
    assert found.notes == ()


def test_what_changed_most_comes_first(trained: tuple[Path, Truth, str]) -> None:
    folder, truth, _ = trained
    found = trend(folder, "gradients")
    names = {series.name for series in found.series}
    by_hand = {n: [truth["gradients", n, step] for step in range(STEPS)] for n in names}
    order = sorted(names, key=lambda n: -max(by_hand[n]) / min(by_hand[n]))
    assert [series.name for series in found.series] == order
    assert found.series[0].change == pytest.approx(max(by_hand[order[0]]) / min(by_hand[order[0]]), rel=1e-5)
    assert found.series[0].change > 10


@pytest.mark.parametrize("trained", ["statistics"], indirect=True)
def test_the_command_says_what_changed_most(
    trained: tuple[Path, Truth, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = trained
    first = trend(folder, "activations", statistic="magnitude").series[0].name
    assert main([str(folder), "activations", "--statistic", "magnitude"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"activations, magnitude: {first} changes most, ")
    assert "in step 2" in out.splitlines()[0]
    assert "ranked by the largest magnitude through the smallest over the steps" in out
    assert main([str(folder), "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("layer,what,step,rank,value,over_steps,over_ranks")
    assert "changes most" in said.err
    assert main([str(folder), "-o", str(tmp_path / "rows.json")]) == 0
    assert len(json.loads((tmp_path / "rows.json").read_text())["rows"]) == 4 * STEPS


@pytest.mark.parametrize("trained", ["statistics"], indirect=True)
def test_a_picture_is_drawn(trained: tuple[Path, Truth, str], tmp_path: Path) -> None:
    folder, _, _ = trained
    for name, head in (("t.svg", b"<?xml"), ("t.png", b"\x89PNG")):
        assert main([str(folder), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(head)
    assert "0.weight" in (tmp_path / "t.svg").read_text()
    assert main([str(folder), "--step", "1", "-o", str(tmp_path / "one.png")]) == 0
    assert main([str(folder), "-o", str(tmp_path / "t.xyz")]) == 2


def test_a_picture_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {"Module.a.Linear.parameters_grad": {"w": [tensor()]}}
    (full := tmp_path / "t.png").symlink_to("/dev/full")
    assert main([str(write(tmp_path / "dump", 0, record)), "-o", str(full)]) == 2
    said = capsys.readouterr()
    assert f"No space left on device: '{full}'" in said.err and said.out.startswith("gradients, Norm")


def test_a_picture_has_any_name(tmp_path: Path) -> None:
    w = {"Module.a.Linear.parameters_grad": {name: [tensor()] for name in ("b\ud800", "$\\frac$", "c\n")}}
    for step in range(2):
        write(tmp_path / "dump", 0, w, step)
    assert main([str(tmp_path / "dump"), "-o", str(tmp_path / "t.svg")]) == 0
    drawn = (tmp_path / "t.svg").read_text("utf-8")
    assert r"a.b\ud800" in drawn and r"a.$\frac$" in drawn


@pytest.mark.parametrize("trained", ["statistics"], indirect=True)
def test_a_picture_without_matplotlib_says_what_to_install(
    trained: tuple[Path, Truth, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from probe_analysis.trend.picture import draw

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"probe-analysis\[plot\]"):
        draw(trend(trained[0]), tmp_path / "t.svg")


def test_what_stops_being_finite_or_dies_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"a": [1.0, 9.0, 1.0], "b": [0.0, 1.0, 1.5], "c": [1.0, 1.0, "NaN"], "d": [0.0, 0.0, 0.0]}
    weights(tmp_path, values)
    found = trend(tmp_path, "weights")
    assert [series.layer for series in found.series] == ["c", "a", "b", "d"]
    assert [series.change for series in found.series] == [math.inf, 9.0, 1.5, 1.0]
    assert main([str(tmp_path), "weights"]) == 0
    assert "c.weight is not finite from step 2 on" in capsys.readouterr().out
    weights(tmp_path / "dead", {"a": [1.0, 9.0, 1.0], "b": [1.0, 0.0, 1.0]})
    assert main([str(tmp_path / "dead"), "weights"]) == 0
    assert "b.weight is zero in step 1" in capsys.readouterr().out


def test_what_becomes_zero_hides_nothing_that_is_not_finite(tmp_path: Path) -> None:
    found = trend(weights(tmp_path, {"a": [1.0, 0.0, 1.0], "b": [1.0, 1.0, "NaN"]}), "weights")
    assert (found.state, found.series[0].layer) == ("not finite", "b")


def test_a_change_of_sign_is_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights(tmp_path, {"a": [0.5, 0.6, 0.5], "b": [0.5, -0.5, 0.5], "c": [-3.0, -2.0, -3.0]}, "Mean")
    found = trend(tmp_path, "weights", statistic="Mean")
    assert [(series.layer, series.change) for series in found.series] == [("b", 2.0), ("c", 1.5), ("a", 1.2)]
    assert found.state == "changes"
    assert "b.weight changes most, and its sign: -0.5 in step 1, 0.5 in step" in found.sentence
    assert main([str(tmp_path), "weights", "--statistic", "Mean"]) == 0
    assert "or the distance where signs differ, through the smallest" in capsys.readouterr().out
    negative = trend(weights(tmp_path / "one", {"c": [-3.0, -2.0]}, "Max"), "weights", statistic="Max")
    assert negative.sentence == "weights, Max: c.weight changes most, 1.5 times: -2 in step 1, -3 in step 0."


def test_it_is_said_what_is_the_same(tmp_path: Path) -> None:
    def said(name: str, values: dict[str, list[Any]], ranks: tuple[int | None, ...] = (None,)) -> Any:
        for rank in ranks:
            weights(tmp_path / name, values, rank=rank)
        return trend(tmp_path / name, "weights")

    whole = said("steps", {"a": [2.0, 2.0], "b": [-1.0, -1.0]})
    assert (whole.state, whole.sentence) == ("constant", "weights, Norm: nothing changes.")
    begun = said("begun", {"a": [2.0, 2.0], "b": [0.0, 1.0]})
    assert begun.state == "changes"
    assert begun.sentence == "weights, Norm: nothing changes, but these are zero at first: b.weight."
    one = said("ranks", {"a": [2.0], "b": [1.0]}, (0, 1))
    assert one.sentence == "weights, Norm: in step 0, the only one, no tensor differs between ranks."
    layers = said("layers", {"a": [2.0], "b": [2.0]})
    assert layers.sentence.endswith(", no tensor is larger or smaller than the median layer.")
    zero = said("zero", {"a": [2.0], "b": [0.0]})
    assert zero.sentence == "weights, Norm: b.weight is zero, and the median layer is not: 0."
    assert said("negative", {"a": [-2.0], "b": [-2.0]}).state == "constant"


def test_values_whose_ratio_no_float_holds(tmp_path: Path) -> None:
    found = trend(weights(tmp_path, {"a": [1e-300, 1e300]}), "weights")
    assert found.series[0].change == math.inf
    assert "1e-300 in step 0, 1e+300 in step 1" in found.sentence


def test_a_small_change_is_said_with_the_digits_that_show_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights(tmp_path, {"a": [1.0, 1.00001], "b": [-2.0, -2.0]})
    assert main([str(tmp_path), "weights"]) == 0
    said = capsys.readouterr().out
    assert "a.weight changes most, by 0.001 %: 1 in step 0, 1.00001 in step 1." in said


def test_one_step_is_ranked_against_the_median_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights(tmp_path, {"a": [1.0], "b": [1.5], "c": [0.01], "d": [2.0], "e": [1.5]})
    assert trend(tmp_path, "weights").series[0].layer == "c"
    assert main([str(tmp_path), "weights"]) == 0
    assert "c.weight is 150 times off the median layer" in capsys.readouterr().out


def test_nothing_of_a_quantity_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights(tmp_path, {"a": [1.0]})
    with pytest.raises(FormatError, match="levels L0 and mix"):
        trend(tmp_path, "gradients")
    assert main([str(tmp_path), "updates"]) == 2
    assert "dump two" in capsys.readouterr().err


def test_a_line_of_characters() -> None:
    assert sparkline([1.0, 10.0, 100.0]) == "▁▅█"
    assert sparkline([1.0, 10.0, 100.0], plain=True) == "_=#"
    assert sparkline([math.nan, None, 0.0, 2.0, 2.0]) == "x ▁▅▅"
    assert len(sparkline([float(i) for i in range(1000)])) == 40
    assert sparkline([]) == ""


def weights(
    folder: Path, values: dict[str, list[Any]], number: str = "Norm", rank: int | None = None
) -> Path:
    """Write a dump in which each module has one parameter, with these norms step after step."""
    for step in range(len(next(iter(values.values())))):
        data = {
            f"Module.{name}.Linear.forward.0": {"parameters": {"weight": tensor(**{number: norms[step]})}}
            for name, norms in values.items()
        }
        write(folder, rank, data, step, level="L0")
    return folder
