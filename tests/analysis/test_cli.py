"""The commands that the package adds to ``probe``: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import probe_analysis
import pytest
from probe_analysis.cli.report import main as report
from probe_format.cli.main import main
from rank_dumps import changed, tensor, write


def dump(folder: Path, eps: float, **numbers: object) -> str:
    x = tensor()
    kwargs = {"eps": {"type": "float", "value": eps}, "of": [{"a": x}, None]}
    record = {"input_args": [x], "input_kwargs": kwargs, "output": [x | numbers]}
    return str(write(folder, 0, {"Functional.rms_norm.0.forward": record}, level="L1"))


def test_diff_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c = (dump(tmp_path / name, eps) for name, eps in (("a", 1e-5), ("b", 1e-6), ("c", 1e-5)))
    assert main(["diff", a, c]) == 0
    assert capsys.readouterr().out.startswith("same: ")
    assert main(["diff", a, b]) == 1
    assert "input_kwargs.eps 1e-05 against 1e-06" in capsys.readouterr().out
    assert main(["diff", a, b, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"][0]["cause"] == "arguments"


def test_nan_says_where_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nan", dump(tmp_path / "whole", 1e-5)]) == 0
    assert main(["nan", dump(tmp_path / "broken", 1e-5, Max="NaN", Min="NaN", Norm="NaN")]) == 1
    assert "Functional.rms_norm.0.forward makes the first value that is not finite" in capsys.readouterr().out


def test_report_writes_a_page_and_says_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = dump(tmp_path / "a", 1e-5), dump(tmp_path / "b", 1e-6, Max="NaN", Min="NaN", Norm="NaN")
    page = tmp_path / "report.html"
    assert report([a, b, "-o", str(page)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("different: ")
    assert f"wrote {page}" in said
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert report([b, "-o", str(page)]) == 0
    assert "makes the first value that is not finite" in capsys.readouterr().out
    assert report([a, "-o", str(tmp_path / "no" / "folder.html")]) == 2
    assert "folder.html" in capsys.readouterr().err
    assert report(["nothing"]) == 2
    assert "nothing does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        report([a, "--noise", b])
    assert "--noise" in capsys.readouterr().err


def test_what_has_no_statistics_is_not_called_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checksums = dump(tmp_path / "xor", 1e-5)
    x = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "md5": "0x0000000000000000"}
    with changed(tmp_path / "xor" / "step0" / "rank0") as data:
        data.clear()
        data["Module.up.Linear.forward.0"] = {"input_args": [x], "parameters": {"weight": x}, "output": [x]}
    assert main(["nan", checksums]) == 2
    assert "The 1 records have no statistics" in capsys.readouterr().err
    assert main(["trend", checksums, "weights"]) == 2
    assert "have no statistics" in capsys.readouterr().err
    assert main(["show", checksums, "--bad"]) == 0
    assert "nothing recorded has statistics" in capsys.readouterr().out
    assert probe_analysis.report(checksums).non_finite.sentence.startswith("The 1 records have no statistics")
    with changed(tmp_path / "xor" / "step0" / "rank0") as data:
        data.clear()
    assert main(["nan", checksums]) == 2
    assert "No values were recorded" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["diff", "nothing", "nothing"], ["nan", "nothing"]])
def test_what_cannot_be_read_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"probe {words[0]}: ")
    assert "nothing does not exist" in said


@pytest.mark.parametrize("command", ["diff", "export", "nan", "ranks", "report", "trend"])
def test_a_step_is_a_number_from_0_up(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "a", "--step", "-1"])
    assert ended.value.code == 2
    assert "argument --step: '-1' is not a whole number from 0 up" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["diff", "--tolerance", x] for x in ("nan", "-1", "inf", "much")),
        ["ranks", "--tolerance", "nan"],
        ["report", "--tolerance", "-1"],
        ["nan", "--factor", "nan"],
        *([command, "--rows", "-3"] for command in ("diff", "nan", "ranks", "trend")),
        ["nan", "--before", "-1"],
    ],
)
def test_amounts_are_numbers_from_0_up(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "a", "b"])
    assert ended.value.code == 2
    assert f"argument {words[1]}: {words[2]!r} is not a" in capsys.readouterr().err


@pytest.mark.parametrize("rows", ["0", "9999"])  # printed at the end, and as it comes
def test_a_reader_that_goes_away_does_not_change_the_exit_code(rows: str, tmp_path: Path) -> None:
    a, b = dump(tmp_path / "a", 1e-5), dump(tmp_path / "b", 1e-6)
    for path in (a, b):
        with changed(Path(path, "step0", "rank0")) as data:
            (record,) = data.values()
            data |= {f"Functional.rms_norm.{n}.forward": record for n in range(500)}
    read, write = os.pipe()
    os.close(read)
    program = "import sys; from probe_format.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "diff", a, b, "--rows", rows]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_command_that_begins_with_its_output_closed_has_its_exit_code(closed: str, tmp_path: Path) -> None:
    program = "import sys; from probe_format.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "diff", dump(tmp_path / "a", 1e-5), dump(tmp_path / "b", 1e-6)]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("suffix", "shown"), [("md", r"a\|b<br>c\\\|d\<e>"), ("txt", r"a|b\nc\|d<e>"), ("csv", "a|b\nc\\|d<e>")]
)
def test_a_row_is_a_row_whatever_its_text(suffix: str, shown: str, tmp_path: Path) -> None:
    record = {"Functional.a|b\nc\\|d<e>.0.forward": {"output": [tensor(Max="NaN", Min="NaN", Norm="NaN")]}}
    place = str(write(tmp_path / "dump", 0, record, level="L1"))
    file = tmp_path / f"x.{suffix}"
    assert main(["nan", place, "-o", str(file)]) == 1
    lines = file.read_text("utf-8").splitlines()
    assert f"Functional.{shown}.0.forward" in "\n".join(lines)
    assert suffix == "csv" or len(lines) == (3 if suffix == "md" else 2)


@pytest.mark.parametrize(
    ("form", "suffix", "head"),
    [
        ("csv", "csv", "what,run,call,line,sentence\n"),
        ("markdown", "md", "| what | run | call | line | sentence |\n| --- | --- | --- | --- | --- |\n"),
    ],
)
def test_a_table_without_rows_has_its_columns(
    form: str, suffix: str, head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finite = dump(tmp_path / "dump", 1e-5)
    file = tmp_path / f"x.{suffix}"
    assert main(["nan", finite, "--format", form]) == main(["nan", finite, "-o", str(file)]) == 0
    assert capsys.readouterr().out.startswith(head) and file.read_text() == head


@pytest.mark.parametrize("suffix", ["csv", "md", "txt", "json"])
def test_a_name_that_utf8_cannot_express_is_in_the_file_as_on_the_terminal(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"Functional.a\ud800.0.forward": {"output": [tensor(Max="NaN", Min="NaN", Norm="NaN")]}}
    place = str(write(tmp_path / "dump", 0, bad, level="L1"))
    assert main(["nan", place, "-o", str(tmp_path / f"x.{suffix}")]) == 1
    name = r"Functional.a\ud800.0.forward"
    assert name in capsys.readouterr().out
    assert name in (tmp_path / f"x.{suffix}").read_text("utf-8")


def test_a_file_that_cannot_be_written_does_not_take_what_was_found_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = dump(tmp_path / "a", 1e-5), dump(tmp_path / "b", 1e-6)
    assert main(["diff", a, b, "-o", str(tmp_path / "nowhere" / "x.csv")]) == 2
    assert "is called with other arguments" in capsys.readouterr().out
