"""Values that are lost, in real dumps: each command says that they are and why, and none reads them as nothing.

lost_model.py makes the dumps. In a killed one, the gradient of a weight is lost; in an unwritten one, its file.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import probe_analysis
import probe_format
import pytest
from rank_dumps import changed, run
from report_dumps import read

pytest.importorskip("torch")
from probe_format.cli.main import main as probe

CALL, GRADIENTS = "Functional.linear.1.backward", "Module.1.fc.Linear.parameters_grad"
WHY = {
    "killed": "gradient: the process ended before this was written",
    "unwritten": "tensor file: [Errno 5] Input/output error",
    "broken": "gradient: RuntimeError: broken on purpose",
}
SAID = {
    "killed": f"1 lost: {CALL} output.1 ({WHY['killed']})",
    "unwritten": f"1 lost: {CALL} output.1 ({WHY['unwritten']})",
    "broken": f"2 lost: Tensor.sqrt.0.backward input.0 ({WHY['broken']}), {GRADIENTS} weight.0 ({WHY['broken']})",
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lost")
    run("lost_model.py", str(folder))
    shutil.copytree(folder / "killed", folder / "recovered")
    assert probe(["recover", str(folder / "recovered")]) == 0
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command prints, its lines without the spaces in between."""
    capsys.readouterr()
    probe([str(word) for word in words])
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("how", ["killed", "recovered", "unwritten"])
@pytest.mark.parametrize("view", [(), ("--full",), ("--brief",), ("--bad",)])
def test_show(dumps: Path, how: str, view: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "show", dumps / how, "--step", 0, *view)
    why = WHY["killed" if how == "recovered" else how]
    assert f"1 lost: {CALL} output.1 ({why})" in out
    assert (f"{CALL} [1 lost]" in out) == (view != ("--bad",))
    assert (f"output.1 lost {why}" in out) == (view not in (("--brief",), ("--bad",)))
    assert ("everything recorded is finite, but for what is lost" in out) == (view == ("--bad",))
    assert "output.1 None" not in out and "lost null" not in out


@pytest.mark.parametrize("how", ["killed", "recovered", "unwritten"])
def test_verify_counts_it_and_a_record_says_why(
    dumps: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = SAID["killed" if how == "recovered" else how]
    assert f"({expected})" in said(capsys, "verify", dumps / how)
    record = probe_format.open(dumps / how).ranks[0].records[CALL]
    if how == "unwritten":
        with pytest.raises(probe_format.FormatError, match="Input/output error"):
            record.tensor("output.1").load()
    else:
        with pytest.raises(KeyError, match="it is lost: gradient: the process ended"):
            record.tensor("output.1")


@pytest.mark.parametrize("how", ["killed", "recovered", "unwritten"])
@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_diff_says_it_and_takes_it_for_no_difference(
    dumps: Path, how: str, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a = dumps / ("whole" if which == "second" else how)
    b = dumps / ("whole" if which == "first" else how)
    found = probe_analysis.diff(a, b)
    assert found.verdict.state == "same", found.verdict.sentence
    run = found.runs[0]
    (call,) = (call for call in run.calls if not call.exact)
    assert call.pair.a.name == CALL and call.returned == 0.0
    why = WHY["killed" if how == "recovered" else how]
    runs = ("first", "second") if which == "both" else (which,)
    assert [value.distance.what for value in call.values] == [
        f"is lost in the {each}: {why}" for each in runs
    ]
    for each in runs:
        note = f"in the {each} run: 1 lost: {CALL} output.1 ({why})"
        assert note in run.notes
        assert note in said(capsys, "diff", a, b)
    assert f"is lost in the {runs[0]}: {why}" in said(capsys, "diff", a, b, "--format", "csv")


def test_diff_still_compares_what_is_there(dumps: Path, tmp_path: Path) -> None:
    """The other gradients of the call, and what parameters' gradients of a run that was cut there are."""
    shutil.copytree(dumps / "recovered", tmp_path / "cut")
    file = tmp_path / "cut" / "step0" / "rank" / "dump.json"
    text = file.read_text()
    norm = json.loads(text)["data"][CALL]["output"][0]["Norm"]
    head, call, tail = text.partition(f'"{CALL}"')
    file.write_text(head + call + tail.replace(f'"Norm":{norm}', f'"Norm":{norm * 2}', 1))
    found = probe_analysis.diff(dumps / "whole", tmp_path / "cut", load=False)
    assert found.verdict.state == "different" and found.verdict.call is not None
    assert found.verdict.call.name == CALL
    planted = next(call for call in found.runs[0].calls if call.pair.a is found.verdict.call)
    assert [v.slot for v in planted.values if v.distance.relative] == ["output.0"]


@pytest.mark.parametrize("which", ["first", "second"])
def test_diff_of_a_run_killed_between_the_gradients_of_two_parameters(dumps: Path, which: str) -> None:
    pair = (dumps / "half", dumps / "whole") if which == "first" else (dumps / "whole", dumps / "half")
    half = probe_format.open(dumps / "half").ranks[0]
    assert list(half.records[GRADIENTS].json) == ["bias"]
    found = probe_analysis.diff(*pair)
    assert found.verdict.state == "same", found.verdict.sentence
    assert any(f"the {which} run was cut off" in note for note in found.runs[0].notes)


@pytest.mark.parametrize("how", ["killed", "unwritten", "broken"])
def test_nan(dumps: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = probe_analysis.first_non_finite(dumps / how)
    assert found.notes == (f"step0/rank: {SAID[how]}",)
    out = said(capsys, "nan", dumps / how)
    assert found.notes[0] in out
    if how == "broken":
        assert "The gradients that it gets are finite, but for what is lost (input.0);" in out
        out = said(capsys, "show", dumps / how, "--bad", "--step", 0)
        assert "made there; its inputs are finite, but for what is lost (input.0)" in out
        assert "made it from finite inputs" not in out
    else:
        assert "is finite, but for what is lost." in out


@pytest.mark.parametrize("how", ["killed", "unwritten"])
def test_ranks(dumps: Path, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, name in enumerate(("whole", how, "whole")):
        shutil.copytree(dumps / name / "step0" / "rank", tmp_path / "step0" / f"rank{rank}")
    found = probe_analysis.ranks(tmp_path)
    assert found.first is None, found.first.sentence
    note = f"step0: rank 1, {SAID[how]}. What is lost is not compared."
    assert note in found.notes
    assert note in said(capsys, "ranks", tmp_path)


def test_trend(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = probe_analysis.trend(dumps / "broken")
    assert [p.step for s in found.series if s.name == "1.fc.weight" for p in s.points] == [1]
    note = f"step0/rank: {SAID['broken']}"
    assert note in found.notes
    assert note in said(capsys, "trend", dumps / "broken")
    capsys.readouterr()
    probe(["trend", str(dumps / "broken"), "--format", "json"])
    assert note in capsys.readouterr().err
    with pytest.raises(probe_format.FormatError, match=f"1 lost: {GRADIENTS}"):
        probe_analysis.trend(_only_gradient(dumps / "broken", dumps / "alone"))


def _only_gradient(dump: Path, to: Path) -> Path:
    """A dump of which the gradient that is lost is all that is left."""
    shutil.copytree(dump / "step0", to / "step0")
    with changed(to / "step0" / "rank") as data:
        gradient = data[GRADIENTS]["weight"]
        data.clear()
        data[GRADIENTS] = {"weight": gradient}
    return to


@pytest.mark.parametrize("how", ["killed", "unwritten", "broken"])
def test_export(dumps: Path, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    assert f"step0/rank: {SAID[how]}" in said(capsys, "export", dumps / how, "-o", tmp_path / "out")
    tables = {
        name: [row for file in (tmp_path / "out" / name).rglob("*.parquet") for row in _rows(pq, file)]
        for name in ("tensors", "arguments")
    }
    if how == "unwritten":
        assert [row["slot"] for row in tables["tensors"] if row["lost"] == WHY[how]] == ["output.1"]
    else:
        rows = [row for row in tables["arguments"] if row["type"] == "lost"]
        assert [row["slot"] for row in rows] == (["output.1"] if how == "killed" else ["input.0", "weight.0"])
        assert all((row["value"], row["number"]) == (WHY[how], None) for row in rows)


def _rows(pq: object, file: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.ParquetFile(file).read().to_pylist()  # type: ignore[attr-defined]
    return rows


@pytest.mark.parametrize("how", ["killed", "unwritten"])
def test_export_to_tensorboard(
    dumps: Path, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    out = said(capsys, "export", dumps / how, "-o", tmp_path / "out", "--to", "tensorboard")
    assert f"step0/rank: {SAID[how]}" in out


@pytest.mark.parametrize("how", ["killed", "unwritten", "broken"])
def test_report(dumps: Path, how: str) -> None:
    page = probe_analysis.report(dumps / how)
    document, column = read(page.html)
    texts, run = document["texts"], document["runs"][0]
    names = [texts[i] for i in column(run["name"])]
    notes = [texts[i] for i in column(run["note"])]
    arguments = [texts[i] for i in column(run["arguments"])]
    slot = "input.0" if how == "broken" else "output.1"
    call = "Tensor.sqrt.0.backward" if how == "broken" else CALL
    place = names.index(call)
    assert notes[place] == f"{slot} is lost: {WHY[how]}"
    assert arguments[place] == ""
    (finding,) = (finding for finding in document["findings"] if finding["kind"] == "finite")
    assert finding["notes"] == [f"step0/rank: {SAID[how]}"]


@pytest.mark.parametrize("how", ["killed", "unwritten"])
def test_report_of_two(dumps: Path, how: str) -> None:
    document, column = read(probe_analysis.report(dumps / "whole", dumps / how).html)
    values = document["comparisons"][0]["values"]
    assert [document["texts"][i] for i in column(values["what"])] == [f"is lost in the second: {WHY[how]}"]
