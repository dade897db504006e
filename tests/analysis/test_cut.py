"""Runs that were killed in the middle of a step: what they did not get to is no difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from probe_analysis.align.alignment import Alignment

pytest.importorskip("torch")
import probe_analysis
import probe_format
from probe_format.cli.main import main as probe
from probe_format.journal import events
from probe_format.jsonio import encode
from probe_format.write import RankWriter
from rank_dumps import changed, run, tensor, write


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut")
    run("cut_model.py", str(folder))
    return folder


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("end", ["forward", "backward"])
@pytest.mark.parametrize("recovered", [False, True])
def test_a_killed_run_is_the_same_as_far_as_it_got(level, end, recovered, dumps, tmp_path):
    whole, cut = dumps / level / "whole", tmp_path / "cut"
    shutil.copytree(dumps / level / end, cut)
    if recovered:
        assert probe(["recover", str(cut)]) == 0
    missing = len(probe_format.open(whole).ranks[0].records) - len(probe_format.open(cut).ranks[0].records)
    assert missing > 5
    for pair, which in (((whole, cut), "second"), ((cut, whole), "first")):
        found = probe_analysis.diff(*pair)
        assert found.verdict.state == "same", found.verdict.sentence
        note = f"the {which} run was cut off in this step: {missing} records come after its end"
        lost = [f"in the {which} run: 1 lost: "] if end == "backward" else []
        assert [*lost, note] == [each.partition("Module.")[0] for each in found.runs[0].notes]


@pytest.mark.parametrize("end", ["forward", "backward"])
def test_a_killed_rank_does_not_disagree(end, dumps, tmp_path):
    for rank, name in enumerate(("whole", end, "whole")):
        shutil.copytree(dumps / "mix" / name / "step0" / "rank", tmp_path / "step0" / f"rank{rank}")
    found = probe_analysis.ranks(tmp_path)
    assert found.first is None, found.first.sentence
    assert sum(found.checked.values()) > 5
    assert any(note.startswith("step0: Rank 1 did not end the step") for note in found.notes)
    assert found.stopped.sentence.startswith("rank 1 stopped first in step0, after ")
    assert "; ranks 0, 2 went on to " in found.stopped.sentence
    # what a rank that was not killed leaves out is a disagreement as before
    with changed(tmp_path / "step0" / "rank2") as data:
        for name in [name for name in data if name.startswith("Module.0.b.Linear.forward")]:
            del data[name]
    assert "no counterpart on rank 2" in probe_analysis.ranks(tmp_path).first.sentence


def test_a_difference_before_the_end_is_found(dumps, tmp_path):
    cut = tmp_path / "cut"
    shutil.copytree(dumps / "mix" / "backward", cut)
    assert probe(["recover", str(cut)]) == 0
    place = cut / "step0" / "rank" / "dump.json"
    text = place.read_text()
    norm = json.loads(text)["data"]["Functional.linear.1.forward"]["output"][0]["Norm"]
    head, record, tail = text.partition('"Functional.linear.1.forward"')
    assert f'"Norm":{norm}' in tail  # of the function, and of the module that returns it
    doubled = tail.replace(f'"Norm":{norm}', f'"Norm":{norm * 2}')
    place.write_text(f"{head}{record}{doubled}")
    verdict = probe_analysis.diff(dumps / "mix" / "whole", cut).verdict
    assert verdict.call.name == "Functional.linear.1.forward" and verdict.state == "different"


def test_the_rank_that_stopped_comes_first(tmp_path, capsys):
    """Rank 3 is killed; the others wait, give up at other places, and differ then."""
    for rank, calls in enumerate((9, 8, 10, 5)):
        begun(tmp_path / "step0" / f"rank{rank}", rank, calls)
    found = probe_analysis.ranks(tmp_path)
    assert found.stopped.ranks == (3,)
    assert found.stopped.call.name == "Distributed.all_reduce.4.forward"
    probe(["ranks", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "stopped: rank 3 stopped first in step0, after Distributed.all_reduce.4.forward; ranks 0, 1, 2 went on to "
        "Distributed.all_reduce.9.forward."
    )


@pytest.mark.parametrize("lowest", [0, 2])
def test_a_rank_that_is_not_in_a_later_step_stopped_before_it(tmp_path, capsys, lowest):
    for step, ranks in ((0, (0, 1, 2, 3)), (1, tuple(x for x in range(4) if x != lowest))):
        for rank in ranks:
            begun(tmp_path / f"step{step}" / f"rank{rank}", 0, 4, ended=True)
    assert probe_analysis.ranks(tmp_path).stopped.ranks == (lowest,)
    probe(["ranks", str(tmp_path)])
    assert capsys.readouterr().out.startswith(f"stopped: rank {lowest} stopped before step1, which ranks ")


@pytest.mark.parametrize("later", [(0,), (2,)])
def test_all_ranks_but_one_stopped_before_a_step(tmp_path, capsys, later):
    """Also where the step of that one is followed by one in which another is alone."""
    for step, ranks in ((0, (0, 1)), (1, (0,)), (2, later)):
        for rank in ranks:
            begun(tmp_path / f"step{step}" / f"rank{rank}", 0, 4, ended=True)
    found = probe_analysis.ranks(tmp_path)
    assert (found.stopped.step, found.stopped.ranks) == ("step1", (1,))
    assert "step1 has rank 0 alone: not compared." in found.notes
    probe(["ranks", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()[0]
    assert said.startswith("stopped: rank 1 stopped before step1, which rank 0 began.")
    # All that is known: with batches of uneven number (torch's Join) a run that is well looks the same.
    assert said.endswith(
        " That is between two steps: no batch was left (data of uneven length), it was killed or failed there, or was "
        "no longer dumped."
    )


def test_a_rank_that_cannot_be_read_in_a_later_step_began_it(tmp_path):
    for step in range(2):
        for rank in range(2):
            begun(tmp_path / f"step{step}" / f"rank{rank}", 0, 4, ended=True)
    for file in (tmp_path / "step1" / "rank1").iterdir():
        file.write_bytes(b"{")
    found = probe_analysis.ranks(tmp_path)
    assert list(found.skipped) == ["step1/rank1"]
    assert found.stopped is None


def test_where_nobody_stopped_before_others_nothing_is_said(tmp_path):
    for rank in range(3):
        begun(tmp_path / "step0" / f"rank{rank}", rank, 6)
    assert probe_analysis.ranks(tmp_path).stopped is None


@pytest.mark.parametrize("calls", [(2, 0, 1, 0), (1, 3, 0, 0), (0, 0, 0, 1)])
def test_what_killed_ranks_did_not_get_to_is_no_disagreement(tmp_path, calls):
    for rank, count in enumerate(calls):
        begun(tmp_path / "step0" / f"rank{rank}", 0, count)
    found = probe_analysis.ranks(tmp_path)
    assert found.stopped.ranks == tuple(rank for rank, count in enumerate(calls) if not count)
    assert found.first is None, found.first.sentence


def test_the_others_are_said_to_go_on_only_where_they_did(tmp_path):
    """Rank 1 is killed after its last call."""
    for rank in range(3):
        begun(tmp_path / "step0" / f"rank{rank}", 0, 2, ended=rank != 1)
    assert probe_analysis.ranks(tmp_path).stopped.sentence == (
        "rank 1 stopped first in step0, after Distributed.all_reduce.1.forward; ranks 0, 2 ended the step."
    )


def test_a_rank_that_an_error_ended_stopped_before_those_that_were_killed_for_it(tmp_path):
    """Its files are whole: they are written as the process exits."""
    for rank, calls in enumerate((4, 5, 3, 4)):
        begun(
            tmp_path / "step0" / f"rank{rank}", 0, calls, ended=rank == 2, error="boom" if rank == 2 else None
        )
    found = probe_analysis.ranks(tmp_path)
    assert found.stopped.ranks == (2,)
    assert found.stopped.call.name == "Distributed.all_reduce.1.forward"
    assert found.first is None, found.first.sentence


def begun(folder, seed, calls, ended=False, error=None):
    """A rank that made so many collective calls, the last of which may end in an error."""
    writer = RankWriter(
        folder, {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    )
    for n in range(calls):
        numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), float(n + seed))
        given = encode([tensor(shape=[1], **numbers)])
        name = f"Distributed.all_reduce.{n}.forward"
        writer.append(events.enter(name, None, "aw", (given, b"{}")))
        failed = error is not None and n == calls - 1
        output = {"raised": f"RuntimeError: {error}"} if failed else {"output": given}
        writer.append(events.exit(name, **output))
    writer.finish(final=ended)


def test_a_call_after_the_end_of_one_run_leaves_out_none_of_its_name_in_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An optimizer that was not reached calls mul_ too: the one in place of the failed run is still seen."""
    call = SimpleNamespace(name="Tensor.mul_.0.forward")
    monkeypatch.setattr(Alignment, "beyond", lambda *_: (frozenset({call.name}), frozenset()))
    assert Alignment((), (call,), (call,)).lone(None, None) == ([], [call])  # type: ignore[arg-type]


def test_of_a_call_that_raised_in_one_run_the_exception_is_said(tmp_path, capsys):
    call = {"input_args": [tensor()], "input_kwargs": {}, "output": [tensor()]}
    raised = {**call, "output": [], "raised": "RuntimeError: Connection closed by peer"}
    after = {"Functional.relu.0.forward": call}  # so that the run was not cut in the call
    ones, twos = ({"Functional.elu.0.forward": record, **after} for record in (call, raised))
    a, b = write(tmp_path / "a", None, ones), write(tmp_path / "b", None, twos)
    for first, second, which in ((a, b, "first"), (b, a, "second")):
        probe(["diff", str(first), str(second)])
        said = f"is in the {which} alone: the other call raised 'RuntimeError: Connection closed by peer'"
        assert said in " ".join(capsys.readouterr().out.split())
