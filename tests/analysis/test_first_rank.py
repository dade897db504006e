"""Name the rank in which a difference begins: collectives carry it to the others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import probe_analysis
from plain_dump import put, tensor
from probe_analysis.cli.diff import main


def records(rank: int, fault: str) -> dict[str, Any]:
    """A module of each rank's own, a sum over the ranks, and what each makes of it."""
    draw = random.Random(rank)
    x, weight, y, total, out = (tensor(draw, [4]) for _ in range(5))
    if fault:
        total, out = ({**t, "Max": t["Max"] + 1} for t in (total, out))
    if fault == "weight" and rank == 1:
        weight, y = ({**t, "Max": t["Max"] + 1} for t in (weight, y))
    summed = {"input_args": [y], "input_kwargs": {}, "output": [total]}
    own = {"input_args": [x], "input_kwargs": {}, "parameters": {"weight": weight}, "output": [y]}
    first = {"Module.up.Linear.forward.0": own, "Distributed.all_reduce.0.forward": summed}
    last = {"Module.down.Linear.forward.0": {"input_args": [total], "input_kwargs": {}, "output": [out]}}
    return {**first, **last}


def dump(folder: Path, *faults: str) -> Path:
    for step, fault in enumerate(faults):
        for rank in range(2):
            put(folder / f"step{step}" / f"rank{rank}", records(rank, fault))
    return folder


def test_the_rank_that_began_is_named(tmp_path, capsys):
    good, bad = dump(tmp_path / "a", "", ""), dump(tmp_path / "b", "", "weight")
    verdict = probe_analysis.diff(good, bad).verdict
    assert verdict.call.name == "Module.up.Linear.forward.0", verdict.sentence
    assert verdict.call.rank.number == 1
    assert "All of step0/rank1 agrees" in verdict.sentence
    assert main([str(good), str(bad)]) == 1
    assert "  in step1/rank1\n" in capsys.readouterr().out


def test_what_differs_in_one_rank_alone_says_nothing_of_the_same_step(tmp_path):
    verdict = probe_analysis.diff(dump(tmp_path / "a", ""), dump(tmp_path / "b", "weight")).verdict
    assert "has other parameters" in verdict.sentence
    assert "All of" not in verdict.sentence


def test_what_comes_from_other_ranks_is_named_where_nothing_else_is(tmp_path):
    verdict = probe_analysis.diff(dump(tmp_path / "a", ""), dump(tmp_path / "b", "reduced")).verdict
    assert verdict.call.name == "Distributed.all_reduce.0.forward"


def test_the_sender_is_named_before_the_one_that_received(tmp_path):
    for name, fault in (("a", ""), ("b", "sent")):
        sender, receiver = records(0, fault), records(1, fault)
        made = sender["Module.up.Linear.forward.0"]["output"]
        made[0] = {**made[0], "Max": made[0]["Max"] + len(fault)}
        put(tmp_path / name / "step0" / "rank0", sender)
        put(
            tmp_path / name / "step0" / "rank1", dict(sorted(receiver.items()))
        )  # begins with what it received
    verdict = probe_analysis.diff(tmp_path / "a", tmp_path / "b").verdict
    assert verdict.call.name == "Module.up.Linear.forward.0", verdict.sentence
    assert verdict.call.rank.number == 0


def test_a_record_that_is_no_object_is_compared_all_the_same(tmp_path):
    name = "Functional.relu.0.forward"
    x = tensor(random.Random(0), [4])
    for folder, record in (("a", None), ("b", {"input_args": [x], "output": [x]})):
        put(tmp_path / folder / "step0" / "rank0", {name: record})
    for pair in (("a", "b"), ("b", "a")):
        assert probe_analysis.diff(*(tmp_path / each for each in pair)).verdict.state == "different"
