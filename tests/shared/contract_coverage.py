"""Promise 5 for every framework: what a dump does not hold is said, and the counts add up.

Who runs it has the fixture `training`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from documents import construct, leaves, records
from framework import Framework


@attrs.frozen
class Training:
    """A framework's networks: `gpt` and others.

    step: dump one step of a case to ``folder``/dump with a configuration; its report. other: another case.
    layer: a word in the names of dense layers and in no other name of a call of gpt.
    """

    step: Callable[..., dict[str, Any]]
    other: str
    layer: str


LAYER, BLOCK = "the layer", "the first block"  # stand for the framework's names in the table below
FILTERS: list[dict[str, Any]] = [
    {},
    {"level": "L0"},
    {"level": "L1"},
    {"list": [LAYER]},
    {"scope": [BLOCK, BLOCK]},
    {"data_mode": ["forward"]},
    {"data_mode": ["backward"]},
    {"data_mode": ["input"]},
    {"task": "tensor", "list": ["gelu"]},
    {"task": "structure"},
]


def total(part: Any) -> int:
    return sum(part.values()) if isinstance(part, dict) else int(part)


Dumped = tuple[dict[str, Any], Path]  # the report of one step of gpt, and the folder of its dump


@pytest.fixture(scope="module", params=FILTERS, ids=str)
def filtered(
    request: pytest.FixtureRequest,
    framework: Framework,
    training: Training,
    tmp_path_factory: pytest.TempPathFactory,
) -> Dumped:
    words = {LAYER: training.layer, BLOCK: f"{framework.kind}.blocks.0.GptBlock.forward.0"}
    keys = {
        key: [words.get(item, item) for item in value] if isinstance(value, list) else value
        for key, value in request.param.items()
    }
    folder = tmp_path_factory.mktemp("filtered")
    return training.step("gpt", folder, **keys), folder / "dump"


@pytest.fixture(scope="module")
def everything(training: Training, tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    folder = tmp_path_factory.mktemp("everything")
    return training.step("gpt", folder), folder / "dump"


def test_the_counts_add_up(filtered: Dumped) -> None:
    said, _ = filtered
    counts = said["counts"]
    seen = total(counts["seen"])
    assert seen > 10
    parts = {k: total(counts[k]) for k in ("recorded", "filtered", "unsupported", "failed")}
    assert seen == sum(parts.values()), counts
    assert total(counts["left_out"]) >= 0
    assert parts["failed"] == 0 and not said["faults"]


def test_the_report_counts_what_is_in_the_dump(filtered: Dumped) -> None:
    said, dump = filtered
    data = records(dump)
    assert said["records"] == len(data)
    assert said["tensors"] == len(list(leaves(data)))
    files = [leaf["data_name"] for leaf in leaves(data) if leaf.get("data_name")]
    assert said["tensor_files"] == len(files) == len(set(files))


def test_a_filter_makes_less_and_says_so(training: Training, everything: Dumped, tmp_path: Path) -> None:
    """All records of a step filtered by a function have it in their names, and the rest is counted."""
    whole, some = everything[0], training.step("gpt", tmp_path, list=["gelu"])
    assert 0 < some["records"] < whole["records"]
    assert total(some["counts"]["filtered"]) > 0 == total(whole["counts"]["filtered"])
    for kind in ("calls", "modules"):
        assert some["counts"]["seen"][kind] == whole["counts"]["seen"][kind]
    assert all("gelu" in name.lower() for name in records(tmp_path / "dump"))


@pytest.mark.parametrize("key", ["list", "scope"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_filter_that_matches_nothing_names_the_nearest(
    framework: Framework, training: Training, key: str, tmp_path: Path
) -> None:
    block = f"{framework.kind}.blocks.9"
    keys = {"list": ["geluu"], "scope": [f"{block}.GptBlock.forward.0", "x"]}
    value, nearest = {"list": ("geluu", "gelu"), "scope": (block, f"{framework.kind}.blocks")}[key]
    check_the_nearest(training.step("gpt", tmp_path, **{key: keys[key]}), value, nearest)


def check_the_nearest(said: dict[str, Any], value: str, nearest: str) -> None:
    """A report names what matched nothing, and the nearest names."""
    entry = next(u for u in said["unmatched"] if value in str(u["value"]))
    assert entry["nearest"] and any(nearest in name for name in entry["nearest"])


def test_what_matches_is_not_called_unmatched(training: Training, tmp_path: Path) -> None:
    assert training.step("gpt", tmp_path, list=["gelu", training.layer])["unmatched"] == []


def test_every_parent_exists(training: Training, everything: Dumped, tmp_path: Path) -> None:
    training.step(training.other, tmp_path)
    for dump in (everything[1], tmp_path / "dump"):
        tree = construct(dump)
        assert not {parent for parent in tree.values() if parent is not None} - tree.keys()
        data = records(dump)
        assert data.keys() - tree.keys() <= {name for name in data if ".parameters_grad" in name}


def test_a_healthy_step_has_no_first_non_finite(everything: Dumped) -> None:
    assert everything[0]["first_non_finite"] is None


@pytest.mark.parametrize("given", ["the model", "a list of models"])
def test_modules_that_nobody_registered_are_named(given: str, framework: Framework, tmp_path: Path) -> None:
    """Those in a plain list, tuple or dict of a module, at any depth; others that lie there too are no loss."""

    def compute(module: Any, x: Any) -> Any:
        for block in module.blocks:
            x = block(x)
        return module.inner(x)

    def inside(module: Any, x: Any) -> Any:
        return module.head(module.named["tail"][0](x))

    inner = framework.module_of("Inner", inside)
    without_hash = type("Meta", (type,), {"__hash__": None})("Odd", (), {})()
    inner.head, inner.named = framework.layer(), {"tail": [framework.layer(), None], "n": [without_hash]}
    model = framework.module_of("Outer", compute)
    model.inner, model.blocks = inner, [framework.layer(), framework.layer()]
    model.known, model.pair, model.numbers = [inner, {"head": inner.head}, model], (inner,), list(range(5000))
    model.around = [model.known]
    model.around.append(model.around)
    other = framework.layer()
    with framework.debugger(task="statistics", dump_path=tmp_path, level="L0") as debugger:
        debugger.start(model if given == "the model" else [other, model])
        model(framework.ones(2, 2))
        debugger.stop()
        debugger.step()
    (report,) = tmp_path.rglob("report.json")
    said = {one["what"]: one["why"] for one in json.loads(report.read_text())["not_seen"]}
    kind, index = framework.kind, "" if given == "the model" else "1."
    where = "the model" if given == "the model" else "model 1"
    told = {what: why for what, why in said.items() if "registered nowhere" in why}
    assert told.keys() == {
        f"{kind}s in the list blocks of {where}",
        f"{kind}s in the dict named of {kind}.{index}inner.Inner",
    }
    assert "it holds 2 that" in told[f"{kind}s in the list blocks of {where}"]
    assert all(f"nn.{kind}List" in why for why in told.values())


def _said(framework: Framework, folder: Path, model: Any, run: Callable[[], object]) -> dict[str, str]:
    """Return what the report of a step at L0 has under not_seen: what, and why."""
    with framework.debugger(task="statistics", dump_path=folder, level="L0") as debugger:
        debugger.start(model)
        run()
        debugger.stop()
        debugger.step()
    (report,) = folder.rglob("report.json")
    return {one["what"]: one["why"] for one in json.loads(report.read_text())["not_seen"]}


@pytest.mark.parametrize("given", ["the model", "a list of models"])
def test_modules_that_came_while_started_are_named(given: str, framework: Framework, tmp_path: Path) -> None:
    """Those that were there before have left: that is not the same as that nobody called them."""
    pair = framework.sequence(framework.layer(), framework.layer())
    model, other = framework.sequence(framework.layer(), pair, framework.layer()), framework.layer()

    def run() -> None:
        pair(framework.ones(2, 2))
        model[0] = framework.layer()
        model[1] = framework.sequence(framework.layer())
        model.append(framework.layer())
        model(framework.ones(2, 2))

    said = _said(framework, tmp_path, model if given == "the model" else [other, model], run)
    kind, index = framework.kind, "" if given == "the model" else "1."
    linear, chain = framework.linear.__name__, framework.sequence.__name__
    came = {what: why for what, why in said.items() if "while started" in what}
    assert came.keys() == {
        f"{kind}.{index}{name}, built or put there while started"
        for name in (f"0.{linear}", f"1.{chain}", f"1.0.{linear}", f"3.{linear}")
    }
    assert set(came.values()) == {"it is seen from the next step on"}
    left = {what for what, why in said.items() if "replaced" in why}
    assert left == {f"{kind}.{index}0.{linear}"}  # what is called before it leaves has its records
    assert not [why for what, why in said.items() if what in left and "not called in" in why]


def test_gradients_of_parameters_that_came_while_started_are_named(
    framework: Framework, tmp_path: Path
) -> None:
    first, second = framework.layer(), framework.layer()
    model = framework.sequence(first, second)

    def run() -> None:
        framework.train(model, framework.ones(2, 2))
        first.weight, second.weight = framework.layer().weight, first.weight
        framework.train(model, framework.ones(2, 2))

    name = f"{framework.kind}.0.{framework.linear.__name__}.parameters_grad: gradient of weight"
    said = _said(framework, tmp_path / "first", model, run)
    assert "was put there while started" in said.pop(name)
    after = _said(framework, tmp_path / "next", model, lambda: framework.train(model, framework.ones(2, 2)))
    assert said == after


def test_modules_that_change_places_are_no_others(framework: Framework, tmp_path: Path) -> None:
    model = framework.sequence(framework.layer(), framework.layer())

    def run() -> None:
        model[0], model[1] = model[1], model[0]
        model(framework.ones(2, 2))

    assert "while started" not in str(_said(framework, tmp_path, model, run))


def test_modules_that_a_class_does_not_name_are_registered(framework: Framework, tmp_path: Path) -> None:
    """A class may leave some out of `named_modules` (a frozen teacher): they are not told to be registered."""

    def compute(module: Any, x: Any) -> Any:
        return module.here(x) + module.out(x)

    model = framework.module_of("Own", compute)
    model.here, model.out = framework.layer(), framework.layer()
    model.also = [model.out]
    walk = "named_modules" if hasattr(model, "named_modules") else "cells_and_names"

    def named(module: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = getattr(framework.module, walk)(module, *args, **kwargs)
        return ((name, each) for name, each in pairs if name != "out")

    setattr(type(model), walk, named)
    said = _said(framework, tmp_path, model, lambda: model(framework.ones(2, 2)))
    (about,) = (why for what, why in said.items() if what.startswith(f"{framework.kind}s in "))
    assert about.startswith("it holds 1 that a class's own way to name its modules leaves out")
    assert "nowhere" not in str(said) and "while started" not in str(said)


__all__ = ["everything", "filtered", *(name for name in dir() if name.startswith("test_"))]
