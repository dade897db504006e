"""Processes that share a rank have folders of their own, which each command keeps apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import probe_analysis
import pytest
from plain_dump import put
from rank_dumps import tensor

#: The norm of the weight of each step, by the folder of a process.
RUNS = {"rank": (1.0, 1.5, 2.5), "proc7": (8.0, 8.25, 8.5), "proc12": (30.0, 34.0, 38.0)}


def dump(folder: Path, runs: dict[str, tuple[float, ...]] = RUNS) -> Path:
    for name, norms in runs.items():
        for step, norm in enumerate(norms):
            records = {"Module.a.Linear.forward.0": {"parameters": {"weight": tensor(Norm=norm)}}}
            put(folder / f"step{step}" / name, records)
    return folder


def test_a_dump_is_the_same_as_itself(tmp_path: Path) -> None:
    one = dump(tmp_path)
    found = probe_analysis.diff(one, one)
    assert found.state == "same", found.sentence
    assert [(run.a.label, run.b.label) for run in found.runs] == [
        (f"step{step}/{name}",) * 2 for step in range(3) for name in ("proc12", "proc7", "rank")
    ]
    assert not found.only_a and not found.only_b
    assert probe_analysis.diff(one, one, noise=one).state == "same"


@pytest.mark.parametrize("extra", ["first", "second", "none"])
def test_folders_of_other_names_belong_together_where_both_dumps_have_as_many(
    tmp_path: Path, extra: str
) -> None:
    """A process that started again has another number."""
    one = dump(tmp_path / "one", {name: RUNS[name] for name in ("rank", "proc7")})
    two = dump(tmp_path / "two", {"rank": RUNS["rank"], "proc99": RUNS["proc7"]})
    if extra != "none":
        shutil.copytree(one / "step1" / "rank", (one if extra == "first" else two) / "step1" / "proc100")
    found = probe_analysis.diff(one, two)
    assert found.state == "same", found.sentence
    pairs = [(run.a.label, run.b.label) for run in found.runs if run.a.rank.step == 1]
    alone = {"first": ("step1/proc100", "step1/proc7"), "second": ("step1/proc7",), "none": ()}[extra]
    others = {"first": ("step1/proc99",), "second": ("step1/proc100", "step1/proc99"), "none": ()}[extra]
    assert (found.only_a, found.only_b) == (alone, others)
    own = [("step1/rank", "step1/rank")]
    assert sorted(pairs) == (own if alone else [("step1/proc7", "step1/proc99"), *own])


def test_what_a_step_begins_with_is_of_the_same_process(tmp_path: Path) -> None:
    """Only one of the processes differs in the first step; the second step of the other begins as it should."""
    one = dump(tmp_path / "one")
    two = dump(tmp_path / "two", {**RUNS, "proc12": (31.0, 34.0, 38.0)})
    found = probe_analysis.diff(one, two)
    assert [run.verdict.state for run in found.runs] == ["different", *["same"] * 8]
    begins = {run.pairing.label for run in found.runs if run.earlier.agreed == "different"}
    assert begins == {"step1/proc12"}
