"""What asks each run of a dump alone: the same answer in any order and grouping, in processes, and on Dask."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_dump import below, write
from probe_analysis import diff, first_non_finite, in_processes, ranks, trend
from probe_analysis.calls.compact_run import Shared
from probe_analysis.diff.run_diff import RankStep
from probe_analysis.result import Framed
from probe_format.cli.main import main
from probe_format.errors import FormatError
from rank_dumps import changed


def apart(dump: Path, **how: Any) -> Framed:
    return diff(dump, dump.with_name("other"), **how)


#: The words of a command -> the function behind it.
ASKED: dict[str, Callable[..., Framed]] = {
    "nan": first_non_finite,
    "trend gradients": partial(trend, quantity="gradients"),
    "trend updates": partial(trend, quantity="updates"),
    "trend activations": partial(trend, quantity="activations", statistic="magnitude"),
    "diff": apart,
}


def broken(folder: Path) -> Path:
    """A dump of three steps and four ranks, of which one cannot be read in one step; and another dump beside it."""
    write(folder / "dump", 3, 4)
    (folder / "dump/step1/rank2/dump.json").write_text("{")
    nudged(folder / "other")
    return folder / "dump"


def nudged(folder: Path) -> None:
    """Write the same dump beside it with honest noise; from step 1 on another weight on rank 3, and another call."""
    for place in sorted(write(folder, 3, 4).glob("step*/rank*")):
        draw = random.Random(str(place.relative_to(folder)))
        step, rank = place.parent.name[-1], place.name[-1]
        with changed(place) as data:
            for _, node in below(data):
                for key in (
                    ("Max", "Min", "Mean", "Norm") if isinstance(node, dict) and "Norm" in node else ()
                ):
                    node[key] *= 1.0 + 1e-7 * draw.uniform(-1, 1)
            if step > "0" and rank == "3":
                data["Module.head.MLP.forward.0"]["parameters"]["weight"]["Norm"] *= 1.5
            if step == "1" and rank == "0":
                del data["Functional.layer_norm.1.forward"]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken(tmp_path_factory.mktemp("plans"))


def said(found: Framed) -> Any:
    return found.document("nan"), repr(found)


def scattered(draw: random.Random) -> Any:
    """An engine that works in any order, unites in any grouping, and sends all of it as to another process."""

    def run(work: Any, parts: Any, unite: Any, done: Any = None) -> Any:
        work, unite, parts = (pickle.loads(pickle.dumps(each)) for each in (work, unite, [*parts]))
        draw.shuffle(parts)
        left = [pickle.dumps(work(part)) for part in parts]
        while len(left) > 1:
            draw.shuffle(left)
            left.append(pickle.dumps(unite(pickle.loads(left.pop()), pickle.loads(left.pop()))))
        return pickle.loads(left[0])

    return run


@pytest.mark.parametrize("asked", ASKED)
@settings(max_examples=10, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_any_order_and_grouping_gives_the_same(asked: str, draw: random.Random, dump: Path) -> None:
    found = ASKED[asked](dump)
    assert said(ASKED[asked](dump, engine=scattered(draw))) == said(found)
    assert [*found.skipped] == ["step1/rank2"]


@pytest.mark.parametrize("asked", ["nan", "trend updates", "ranks", "diff ../other", "diff"])
def test_processes_write_the_same(
    asked: str,
    dump: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For people, and all of it into a file; of diff also without its rows, which are not kept then."""
    command, *words = asked.split()
    output = tmp_path / "all.json"
    words = [*words, "-o", str(output)] if asked != "diff" else ["../other"]
    monkeypatch.chdir(dump)
    written = []
    for more in ([], ["--workers", "2"]):
        assert main([command, ".", *words, *more]) in (0, 1)
        written.append((capsys.readouterr().out, output.read_text() if output.exists() else ""))
    assert written[0] == written[1] and "step1/rank2 is skipped" in written[0][0]


def runs_in(read: Any) -> list[Any]:
    """What was read by itself: a run, or two that were compared, of which nothing may be left."""
    if not isinstance(read, RankStep):
        return [read]
    assert {*vars(read.pairing)} == {"a", "b", "options", "noise"}
    return [read.pairing.a, read.pairing.b]


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_kept_of_a_run_is_small(asked: str, dump: Path) -> None:
    """Of what was read of it nothing stays, in the process that read it either."""
    kept = []

    def run(work: Any, parts: Any, unite: Any, done: Any = None) -> Any:
        for part in parts:
            kept.append(len(pickle.dumps(work(part))) / len(part))
            for run in (run for _, each in part for run in runs_in(each)):
                assert {*vars(run)} == {"label", "rank"} and "records" not in vars(run.rank)
                assert not {"documents", "construct", "stack"} & {*vars(run.rank)}
        raise FormatError("as far as this")

    with pytest.raises(FormatError, match="as far as this"):
        ASKED[asked](dump, engine=run)
    assert len(kept) == (4 if asked in ("trend updates", "diff") else 12)
    assert max(kept) < 0.35 * (dump / "step0/rank0/dump.json").stat().st_size


def test_none_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    nudged(tmp_path / "other")
    for file in write(tmp_path / "dump", 1, 2).rglob("dump.json"):
        file.write_text("{")
    for ask in ASKED.values():
        with pytest.raises(FormatError, match="rank0"):
            ask(tmp_path / "dump", engine=scattered(random.Random(0)))
    with pytest.raises(FormatError, match="rank0"):
        first_non_finite(tmp_path / "dump", engine=in_processes(2))


def test_progress_names_what_is_read(dump: Path) -> None:
    told = []
    for ask in ASKED.values():
        ask(dump, progress=lambda *each: told.append(each))
    runs = [(f"step{n // 4}/rank{n % 4}", n + 1, 12) for n in range(12)]
    ranks = [[(f"step{step}/rank{n}", n + 1, 4) for n in range(4)] for step in range(3)]
    assert told == [*runs, *runs, *ranks[2], *runs, *ranks[0], *ranks[1], *ranks[2]]


def test_what_runs_have_in_common_is_kept_no_longer_than_they_are_read(dump: Path) -> None:
    for ask in (apart, ranks):
        ask(dump)
        assert not Shared.kept().known
        assert ask(dump).document("x") == ask(dump).document("x")


@pytest.mark.parametrize("rank", [0, None])
def test_rows_leave_nothing_in_memory_but_the_last_of_single_ranks(dump: Path, rank: int | None) -> None:
    found = diff(dump, dump.with_name("other"), rank=rank)
    assert [*found.rows()] == [*found.rows()] and found.frame().shape[0] > 30
    read = [run for run in found.runs if {"aligned", "calls"} & {*vars(run.pairing), *vars(run)}]
    assert read == ([found.runs[-1]] if rank == 0 else [])
    assert all(run.calls[0].pair.a.rank is run.a.rank for run in found.runs)


def test_of_many_ranks_those_that_differ_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        write(tmp_path / name, 9, 4)
    with changed(tmp_path / "b/step7/rank3") as data:
        data["Module.head.MLP.forward.0"]["parameters"]["weight"]["Norm"] *= 1.5
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    said = capsys.readouterr().out
    assert "35 of 36 runs (a rank of a step each) are the same: -o FILE" in said
    assert said.count(" with step") == 1
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--step", "7"]) == 1
    assert capsys.readouterr().out.count(" with step") == 4
