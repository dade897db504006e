"""The command ``probe kernel``, through ``probe``."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import probe_kernel
import pytest
from probe_format.cli.main import main
from probe_kernel.cli import COMMANDS
from trees import conv

LOOP = Path(__file__).parent / "data" / "loop"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOOP, tmp_path / "loop"))


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "show", str(LOOP), "--step", "0"]) == 0
    out = capsys.readouterr().out
    assert "rank 0, Net, graph 0, iteration 0: 9 of 9 kernels" in out
    assert "BFloat16[2,3]" in out and "nan count 1" in out
    assert main(["kernel", "show", str(LOOP), "--filter", "Mul", "--brief"]) == 0
    out = capsys.readouterr().out
    assert out.count("Mul  Expand__Muls_Mul-op0") == 3 and "(execution 2)" in out and "output.0" not in out


def test_a_subcommand_that_is_none_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["kernel", "shwo", "x"])
    assert stop.value.code == 2
    assert "there is no command 'shwo'. Did you mean 'show'?" in capsys.readouterr().err


def test_help_keeps_its_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main(["kernel", command, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        what = " ".join(COMMANDS[command].what.split())
        assert f"{what[0].upper()}{what[1:]}." in said, command


def test_show_bad_has_only_what_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "show", str(LOOP), "--bad", "--brief"]) == 0
    out = capsys.readouterr().out
    assert "Default_IsNan-op0" in out and "Mul" not in out


def test_find(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "find", "misc.py:21", str(LOOP)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("/tmp/kread/misc.py:21: e = a + C\n")
    assert "graph 0: Add  Default/Add-op0" in out
    assert str(next(LOOP.glob("rank_0/Net/0/0/Add*output.0*"))) in out
    assert "max 11" in out


def test_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "find", "misc.py:1", str(LOOP)]) == 1
    assert "No operator comes from line 1 of misc.py" in capsys.readouterr().err


def test_statistics_are_written_once_and_read_back(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "statistics", str(copy), "--category", "max", "--category", "md5"]) == 0
    path = copy / "rank_0/Net/0/0/statistic.csv"
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 21 and set(rows[0]) >= {"Op Type", "Max Value", "MD5"}
    dump = probe_kernel.open(copy)
    assert list(dump.problems) == []
    for kernel in dump.ranks[0].iterations[0].kernels:
        for slot in kernel.slots:
            assert set(slot.statistics) == {"max", "md5"}
    before = path.read_bytes()
    capsys.readouterr()
    assert main(["kernel", "statistics", str(copy), "--category", "min"]) == 1
    assert "is there already" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_statistics_elsewhere(tmp_path: Path) -> None:
    assert main(["kernel", "statistics", str(LOOP), "-o", str(tmp_path)]) == 0
    assert (tmp_path / "rank_0/Net/0/0/statistic.csv").is_file()
    assert not list(LOOP.glob("**/statistic.csv"))


def test_export_then_probe_show_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["kernel", "export", str(LOOP), "-o", out]) == 0
    assert "9 records, 21 tensors" in capsys.readouterr().out
    assert main(["verify", out]) == 0
    assert main(["show", out, "--filter", "Concat"]) == 0
    assert "Kernel.Concat.Default_Concat-op0.0.forward" in capsys.readouterr().out


def test_check_names_what_is_damaged(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "check", str(copy)]) == 0
    bad = next(copy.glob("rank_0/Net/0/0/Add*output*"))
    bad.chmod(0o644)
    bad.write_bytes(bad.read_bytes()[:-3])
    (copy / "rank_0/Net/0/0/x.y").write_text("")
    capsys.readouterr()
    assert main(["kernel", "check", str(copy)]) == 3
    err = capsys.readouterr().err
    assert bad.name in err and "cut short" in err and "x.y is unknown" in err


def test_wrong_folders_ranks_and_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "show", str(tmp_path / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err
    conv(tmp_path / "rank_0/Net/0/0")
    assert main(["kernel", "show", str(tmp_path), "--rank", "5"]) == 1
    assert "has no such rank or step. It has: rank 0, Net, graph 0, iteration 0" in capsys.readouterr().err
    assert main(["kernel", "find", "train.py", str(tmp_path)]) == 1
    assert "Write it as train.py:175" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["kernel", "nonsense"])
    assert stop.value.code == 2


def test_without_the_package_probe_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "probe_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "probe_kernel", None)
    assert main(["kernel", "show", "."]) == 2
    assert "pip install probe-kernel" in capsys.readouterr().err


def test_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "package probe-kernel" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["kernel", "--help"])
    assert "list the operators of a line of your script" in capsys.readouterr().out
