"""The commands for programs: one form, as specified, and no rank that cannot be read hides the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import plain_dump
import probe_analysis
import pytest
from jsonschema import Draft202012Validator
from probe_analysis.result import VERSION, Framed
from probe_format.cli.main import main
from rank_dumps import changed, run_ranks

SPEC = Path(probe_analysis.__file__).parent / "spec"
SCHEMA = json.loads((SPEC / "results.schema.json").read_text())
ONE = ("wrong", "different", "not finite", "disagree")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of two ranks and two steps: an honest one with values, and one whose rank 1 has another dropout."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("results")
    run_ranks("given_model.py", 2, str(folder), "tensor", "honest=mix", "dropout=mix")
    plain_dump.write(folder / "plain", steps=2)
    return folder


def code_of(found: dict[str, Any]) -> int:
    return int(found["verdict"]["state"] in ONE and found["command"] != "trend")


def result(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """What a command writes for a program, and nothing else, after a look whether it is as specified."""
    code = main([*map(str, words), "--format", "json"])
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    Draft202012Validator(SCHEMA).validate(found)
    assert code == code_of(found)
    assert (found["version"], found["command"]) == (VERSION, words[0])
    assert list(found) == SCHEMA["required"]
    place = {key: found["verdict"][key] for key in ("run", "call", "line", "modules")}
    first = found["causes"][0] if found["causes"] else dict.fromkeys(place) | {"line": "", "modules": []}
    assert place.items() <= first.items()
    return found


ALL = {
    "check": (["check", "honest=mix"], "right"),
    "diff": (["diff", "honest=mix", "dropout=mix"], "different"),
    "diff itself": (["diff", "honest=mix", "honest=mix"], "same"),
    "nan": (["nan", "plain"], "not finite"),
    "nan finite": (["nan", "honest=mix"], "finite"),
    "ranks": (["ranks", "dropout=mix"], "disagree"),
    "ranks agree": (["ranks", "honest=mix"], "agree"),
    "trend": (["trend", "honest=mix"], "changes"),
    "trend not finite": (["trend", "plain", "activations"], "not finite"),
}


def placed(words: list[str], folder: Path) -> list[str]:
    return [str(folder / word) if (folder / word).exists() else word for word in words]


@pytest.mark.parametrize("name", ALL)
def test_what_a_command_writes_is_as_specified(
    runs: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Framed] = []
    document = Framed.document
    monkeypatch.setattr(
        Framed, "document", lambda own, command: written.append(own) or document(own, command)
    )
    words, state = ALL[name]
    more = ["--replay", "--suggest-map", str(tmp_path / "map.yaml")] if name == "diff" else []
    found = result(capsys, *placed(words, runs), *more)
    assert found["verdict"]["state"] == state
    (own,) = written
    assert found["verdict"]["sentence"] in own.sentence
    frame = own.frame()
    keys = SCHEMA["$defs"][words[0]]["required"]
    assert keys == list(frame.columns) == list(SCHEMA["$defs"][words[0]]["properties"])
    assert len(found["rows"]) == len(frame)
    assert all(list(row) == keys for row in found["rows"])
    if name in ("diff", "nan", "ranks"):
        assert (
            found["causes"] and "model.py, line" in found["verdict"]["line"] and found["verdict"]["modules"]
        )
    if name in ("diff", "ranks"):  # the place is that of the cause
        assert found["verdict"]["call"] == "Functional.dropout.1.forward"
        assert found["verdict"]["modules"][0] == "Module.module.blocks.1.drop.Dropout.forward.0"
        assert found["causes"][0]["cause"] in ("arguments", "argument")
    if name == "ranks":
        assert found["rows"][0]["ranks"] == [[0], [1]]
    if name == "diff":
        assert {row["run"] for row in found["rows"] if row["cause"] == "arguments"} >= {"step0/rank1"}
    file = tmp_path / "result.json"
    assert main([*placed(words, runs), "-o", str(file)]) == code_of(found)
    assert json.loads(file.read_text()) == found


def torn(runs: Path, folder: Path, share: float) -> Path:
    """A copy of the honest dump of which one rank's file ends early."""
    shutil.copytree(runs / "honest=mix", folder)
    file = folder / "step0" / "rank1" / "dump.json"
    whole = file.read_bytes()
    size = int(len(whole) * share) if share < 1 else len(whole) - 2
    file.write_bytes(whole[:size])
    return folder


@pytest.mark.parametrize("share", [0.0001, 0.1, 0.5, 0.9, 1])
def test_a_rank_that_is_torn_hides_no_other(
    runs: Path, share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = torn(runs, tmp_path / "bad", share)
    good = runs / "honest=mix"
    label = "step0/rank1"
    uses = [["diff", good, bad], ["diff", bad, good], ["nan", bad], ["ranks", bad], ["trend", bad]]
    for words in [*uses, *([["check", bad]] if share == 0.5 else [])]:
        found = result(capsys, *words)
        assert list(found["skipped"]) == [label], words
        assert str(bad / label / "dump.json") in found["skipped"][label]
        states = {"diff": "same", "nan": "finite", "ranks": "agree", "trend": "changes", "check": "right"}
        assert found["verdict"]["state"] == states[words[0]]
        left = {"step0/rank0", "step1/rank0", "step1/rank1"} if words[0] in ("diff", "check") else set()
        assert {row["run"] for row in found["rows"] if "run" in row} == left
        if share == 0.5:
            assert main([*map(str, words)]) == 0
            assert f"note: {label} is skipped: {bad / label / 'dump.json'}" in capsys.readouterr().out
        if words[0] == "trend":
            assert {(row["step"], row["rank"]) for row in found["rows"]} == {(0, 0), (1, 0), (1, 1)}


def test_what_other_commands_say_of_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = torn(runs, tmp_path / "bad", 0.5)
    said = str(bad / "step0" / "rank1" / "dump.json")
    codes = {"show": [1], "verify": [3, 4], "export": [1], "report": [0]}
    for name, code in codes.items():
        out = [] if name in ("show", "verify") else ["-o", str(tmp_path / name)]
        assert main([name, str(bad), *out]) in code
        told = capsys.readouterr()
        assert said in told.out + told.err
        assert "step1/rank1" in told.out or out


def test_where_no_rank_is_left_nothing_is_written_for_a_program(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = torn(runs, tmp_path / "bad", 0.5)
    shutil.rmtree(bad / "step1")
    for words in (
        ["nan", bad, "--rank", "1"],
        ["ranks", bad],
        ["diff", bad / "step0" / "rank1", bad, "--rank", "1"],
    ):
        assert main([*map(str, words), "--format", "json"]) == 2
        told = capsys.readouterr()
        assert told.out == "" and "is cut short" in told.err


def test_a_record_that_is_damaged_skips_its_rank(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(runs / "plain", bad)
    with changed(bad / "step1" / "rank0") as data:
        for record in data.values():
            for tensor in (x for _, x in plain_dump.below(record) if plain_dump.is_tensor(x)):
                tensor["shape"] = [None]
    for words in (["nan", bad], ["diff", runs / "plain", bad], ["trend", bad, "weights"], ["ranks", bad]):
        found = result(capsys, *words)
        assert list(found["skipped"]) == ["step1/rank0"] and "shape" in found["skipped"]["step1/rank0"]


def test_the_page_names_what_the_schema_has(runs: Path) -> None:
    page = (SPEC / "results.md").read_text()
    parts = ((name, part) for name, part in SCHEMA["$defs"].items() if "required" in part and name != "place")
    for command, part in parts:
        for key in part["required"]:
            assert f"`{key}`" in page or command == "check"
    for branch in SCHEMA["allOf"]:
        then = branch["then"]["properties"]
        for state in then["verdict"]["properties"]["state"]["enum"]:
            assert f"`{state}`" in page
        for cause in (
            then.get("causes", {}).get("items", {}).get("properties", {}).get("cause", {}).get("enum", ())
        ):
            assert f"`{cause}`" in page
