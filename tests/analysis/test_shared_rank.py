"""Processes that share a rank have folders of their own, which each command keeps apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import probe_analysis
import pytest
from plain_dump import put
from probe_analysis.cli.trend import main
from probe_format.layout import watch_file
from rank_dumps import tensor
from watched import watched

#: The norm of the weight of each step, by the folder of a process.
RUNS = {"rank": (1.0, 1.5, 2.5), "proc7": (8.0, 8.25, 8.5), "proc12": (30.0, 34.0, 38.0)}


def dump(folder: Path, runs: dict[str, tuple[float, ...]] = RUNS, **header: str) -> Path:
    for name, norms in runs.items():
        for step, norm in enumerate(norms):
            records = {"Module.a.Linear.forward.0": {"parameters": {"weight": tensor(Norm=norm)}}}
            put(folder / f"step{step}" / name, records, **header)
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


def test_updates_are_of_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = probe_analysis.trend(dump(tmp_path), "updates")
    values = {(point.folder, point.step): point.value for point in found.series[0].points}
    truth = {(name, n): norms[n + 1] - norms[n] for name, norms in RUNS.items() for n in range(2)}
    assert values == truth
    assert found.ranks == (None, None, None)
    assert found.series[0].change == 2.0
    assert "0.5 in step 0 of folder rank, 1 in step 1 of folder rank" in found.sentence
    assert main([str(tmp_path), "weights", "--step", "1", "-o", str(tmp_path / "lines.svg")]) == 0
    picture = (tmp_path / "lines.svg").read_text()
    assert all(f"folder {name}" in picture for name in RUNS)
    capsys.readouterr()
    assert main([str(tmp_path), "updates", "--format", "csv"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.endswith(",folder") and {row.rpartition(",")[2] for row in rows} == set(RUNS)


def test_updates_are_of_one_mode(tmp_path: Path) -> None:
    """MindSpore's steps of graph mode and of PyNative mode are of two countings."""
    dump(tmp_path / "graph", {"rank": (1.0, 2.0)}, framework="mindspore")
    dump(tmp_path / "pynative", {"rank": (10.0, 13.0)}, framework="mindspore")
    found = probe_analysis.trend(tmp_path, "updates")
    assert {(p.folder, p.value) for p in found.series[0].points} == {
        ("graph/rank", 1.0),
        ("pynative/rank", 3.0),
    }
    assert found.ranks == (None,)


def test_watch_files_are_kept_apart(tmp_path: Path) -> None:
    watched(tmp_path, 3, ranks=2)
    for number, name in enumerate(("rank", "proc7")):
        file = watch_file(tmp_path, number)
        file.rename(file.with_name(f"{name}{file.suffix}"))
    found = probe_analysis.trend(tmp_path)
    assert found.ranks == (None, None)
    assert {p.folder for p in found.series[0].points} == {"rank", "proc7"}
