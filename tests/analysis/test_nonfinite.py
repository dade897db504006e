"""Where a step stops being finite: one rule, whoever asks; the planted faults are in test_planted.py."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path

import probe_analysis
import pytest
import rank_dumps
from plain_dump import put
from probe_format.cli.main import main as probe

KINDS = ({}, {"Max": math.nan, "Min": math.nan}, {"Max": math.inf}, {"Min": -math.inf})
MASK = {"type": "float", "value": " -inf"}


def tensor(kind: int = 0) -> dict[str, object]:
    return rank_dumps.tensor(**KINDS[kind])


def call(given: list[object], gave: list[object], **more: object) -> dict[str, object]:
    return {"input_args": given, "input_kwargs": {}, "output": gave, **more}


def made_up(draw: random.Random, place: Path) -> None:
    """Write a rank of calls in modules up to three deep, some of whose tensors are not finite."""
    data: dict[str, object] = {}
    parents: dict[str, str | None] = {}
    rare = draw.choice((0.03, 0.2, 0.6))

    def some() -> dict[str, object]:
        return tensor(draw.choice((1, 2, 3)) if draw.random() < rare else 0)

    def inside(path: str, depth: int) -> None:
        name = f"Module.{path}.M.forward.0"
        parents[name] = None if depth == 0 else f"Module.{path.rpartition('.')[0]}.M.forward.0"
        for i in range(draw.randrange(4)):
            if depth < 2 and draw.random() < 0.5:
                inside(f"{path}.{i}", depth + 1)
            else:
                api = f"Torch.f.{len(data)}.forward"
                parents[api] = name
                asked = [MASK] if draw.random() < 0.1 else []
                data[api] = call([some(), *asked], [some()])
                if draw.random() < 0.2:
                    data[f"saved.{len(data)}.debug"] = draw.choice((some(), {"x": some()}, [some()]))
        data[name] = call(
            [some()], [some()], **({"parameters": {"w": some()}} if draw.random() < 0.3 else {})
        )

    inside("a", 0)
    for name in reversed([n for n in data if ".forward" in n]):
        data[name.replace("forward", "backward")] = {"input": [some()], "output": [some(), None]}
    data["Module.a.M.parameters_grad"] = {"w": [some()]}
    put(place, data, level="mix")
    (place / "construct.json").write_text(json.dumps(parents))


@pytest.mark.parametrize("seed", range(40))
def test_show_and_nan_name_the_same_record_first(seed, tmp_path, capsys):
    draw = random.Random(seed)
    for rank in range(2):
        made_up(draw, tmp_path / "step0" / f"rank{rank}")
    firsts = []
    for rank in range(2):
        assert probe(["show", str(tmp_path), "--bad", "--rank", str(rank)]) == 0
        out = capsys.readouterr().out
        named = re.search(r"^first not finite: (\S+),", out, re.M)
        found = probe_analysis.first_non_finite(tmp_path, rank=rank)
        assert (found.first and found.first.call.name) == (named and named[1])
        firsts += [] if found.first is None else [(found.first.order, rank, found.first.call.name)]
        counted = re.search(r"^not finite: (\d+) of", out, re.M)
        assert sum(found.counts.values()) == (int(counted[1]) if counted else 0)
    every = probe_analysis.first_non_finite(tmp_path).first
    assert (every and every.call.name) == (min(firsts)[2] if firsts else None)
    page = probe_analysis.report(tmp_path).non_finite
    assert page is not None and (page.first and page.first.sentence) == (every and every.sentence)


def first_of(place: Path, data: dict[str, object], parents: dict[str, str | None] | None = None):
    put(place / "step0" / "rank0", data)
    (place / "step0" / "rank0" / "construct.json").write_text(json.dumps(parents or {}))
    return probe_analysis.first_non_finite(place).first


def test_what_comes_from_outside_is_named_at_the_outermost_call_that_got_it(tmp_path):
    inner, outer, whole = "Functional.linear.0.forward", "Module.a.Linear.forward.0", "Module.m.M.forward.0"
    parents = {whole: None, outer: whole, inner: outer}
    data = {
        inner: call([tensor(), tensor(1)], [tensor(1)]),
        outer: call([tensor()], [tensor(1)], parameters={"weight": tensor(1)}),
        whole: call([tensor()], [tensor(1)]),
    }
    found = first_of(tmp_path / "weight", data, parents)
    assert found.call.name == outer and "among its parameters: parameters.weight" in found.sentence
    data[whole] = call([tensor(1)], [tensor(1)])
    found = first_of(tmp_path / "data", data, parents)
    assert found.call.name == whole and found.outside and found.before == () and found.order == 0


@pytest.mark.parametrize("value", [-math.inf, "-Infinity", " -inf"])
def test_an_infinity_that_is_asked_for_is_none_in_a_dump_by_msprobe_either(value, tmp_path):
    asked = [tensor(), {"type": "float", "value": value}]
    assert first_of(tmp_path, {"Tensor.masked_fill.0.forward": call(asked, [tensor(3)])}) is None


def test_a_text_asks_for_nothing(tmp_path):
    text = {"type": "str", "value": "NaN"}
    found = first_of(tmp_path, {"Torch.einsum.0.forward": call([text, tensor()], [tensor(1)])})
    assert found.call.name == "Torch.einsum.0.forward" and not found.outside


@pytest.mark.parametrize("saved", [tensor(1), {"x": tensor(1)}, [tensor(), {"y": tensor(1)}]])
def test_a_saved_value_holds_what_is_not_finite_and_did_not_make_it(saved, tmp_path):
    found = first_of(tmp_path, {"loss.0.debug": saved})
    assert "is the first to hold" in found.sentence and "makes" not in found.sentence


def ranks_of(place: Path, *ranks: dict[str, object]) -> Path:
    for rank, data in enumerate(ranks):
        put(place / "step0" / f"rank{rank}", data)
    return place


#: Of a rank that makes NaN after two calls, and of one that receives it in its first call.
MAKES = {
    "Torch.f.0.forward": call([tensor()], [tensor()]),
    "Torch.f.1.forward": call([tensor()], [tensor()]),
    "Torch.log.0.forward": call([tensor()], [tensor(1)]),
}
RECEIVING = ("recv", "irecv", "all_reduce", "broadcast", "all_gather", "batch_isend_irecv", "reduce_scatter")


def receives(name: str) -> dict[str, object]:
    after = f"Module.{name}.M"
    return {
        f"{name}.0.forward": call([tensor()], [tensor(1)]),
        f"{after}.forward.0": call([tensor(1)], [tensor(1)]),
        f"{after}.backward.0": {
            "input": [tensor()],
            "output": [tensor(1)],
        },  # it follows from what was received
    }


@pytest.mark.parametrize("kind", ["Distributed", "MintDistributed"])
@pytest.mark.parametrize("what", RECEIVING)
def test_a_rank_that_receives_a_nan_is_not_blamed_before_the_one_that_makes_it(kind, what, tmp_path, capsys):
    got = receives(f"{kind}.{what}")
    found = probe_analysis.first_non_finite(ranks_of(tmp_path, MAKES, got))
    assert (found.first.run.label, found.first.call.name) == ("step0/rank0", "Torch.log.0.forward")
    assert found.first.sentence == found.sentence and found.forward is found.first
    assert "makes the first value" in found.sentence and "ranks" not in found.sentence
    alone = probe_analysis.first_non_finite(tmp_path, rank=1)
    assert alone.first.call.name == f"{kind}.{what}.0.forward" and alone.forward is alone.first
    assert "makes the first" not in alone.sentence and "receives them from other ranks" in alone.sentence
    assert "Its inputs are finite. None of the ranks that were read makes them." in alone.sentence
    assert ("its reduction overflows" in alone.sentence) == ("reduce" in what)
    assert probe(["show", str(tmp_path), "--bad", "--rank", "1"]) == 0
    out = capsys.readouterr().out
    assert ": received from other ranks; its inputs are finite" in out and f"made by {kind}" not in out


def test_ranks_that_all_receive_are_told_so(tmp_path):
    both = receives("Distributed.all_reduce")
    found = probe_analysis.first_non_finite(ranks_of(tmp_path, both, both))
    assert found.first.run.label == "step0/rank0" and not found.first.call.backward
    assert found.sentence.endswith("None of the ranks that were read makes them.")


def test_a_nan_that_goes_into_a_collective_and_comes_from_outside_is_named_before_what_others_receive(
    tmp_path,
):
    gives = {
        "Torch.f.0.forward": call([tensor()], [tensor()]),
        "Distributed.all_reduce.0.forward": call([tensor(1)], [tensor(1)]),
    }
    found = probe_analysis.first_non_finite(ranks_of(tmp_path, receives("Distributed.all_reduce"), gives))
    assert found.first.run.label == "step0/rank1" and found.first.outside and not found.first.received


def test_what_comes_from_outside_may_come_from_a_rank_that_makes_such_values(tmp_path):
    got = {"Torch.f.0.forward": call([tensor(1)], [tensor(1)])}
    found = probe_analysis.first_non_finite(ranks_of(tmp_path / "both", MAKES, got))
    assert found.first.run.label == "step0/rank1" and found.first.outside
    more = " In step0/rank0, Torch.log.0.forward makes such values: these may have come from there."
    assert found.sentence.endswith(f"outside of what was recorded.{more}")
    alone = probe_analysis.first_non_finite(tmp_path / "both", rank=1)
    assert alone.sentence.endswith("outside of what was recorded.")
