"""The command ``probe``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import probe_format
import pytest
from probe_format.cli import main

CORPUS = Path(__file__).parent / "corpus"
PROBE = CORPUS / "probe"


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("complete", 0),
        ("recovered", 0),
        ("open", 0),
        ("torn", 3),
        ("damaged_json", 4),
        ("damaged_journal", 4),
    ],
)
def test_verify_tells_the_state_by_word_and_exit_code(capsys, case, code):
    found, out, _ = run(capsys, "verify", PROBE / case)
    assert found == code
    state = {"open": "complete"}.get(case, case.partition("_")[0])
    assert out.startswith(f"{state:<9} {PROBE / case}")


def test_the_worst_rank_decides(capsys, tmp_path):
    shutil.copytree(PROBE / "complete" / "step0" / "rank", tmp_path / "step0" / "rank0")
    shutil.copytree(PROBE / "torn" / "step0" / "rank", tmp_path / "step0" / "rank1")
    assert run(capsys, "verify", tmp_path)[0] == 3
    assert run(capsys, "verify", tmp_path, "--rank", 0)[0] == 0
    code, _, err = run(capsys, "verify", tmp_path, "--rank", 7)
    assert code == 1 and "it has step0/rank0, step0/rank1" in err


def test_recover_exits_0_3_1(capsys, tmp_path):
    for case, code, says in (
        ("torn", 0, "whole"),
        ("damaged_journal", 3, "partial"),
        ("complete", 1, "nothing"),
    ):
        shutil.copytree(PROBE / case, tmp_path / case)
        found, out, _ = run(capsys, "recover", tmp_path / case)
        assert found == code and out.startswith(says)
    assert run(capsys, "verify", tmp_path / "torn")[0] == 0


@pytest.mark.parametrize("command", ["show", "verify", "recover"])
def test_a_folder_that_is_no_dump(capsys, tmp_path, command):
    code, out, err = run(capsys, command, tmp_path)
    assert code == 1 and out == ""
    assert err.startswith(f"probe {command}: {tmp_path} is not a dump")
    assert run(capsys, command, tmp_path / "nowhere")[0] == 1


def test_wrong_arguments_exit_with_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["shaw", "x"])
    assert caught.value.code == 2
    assert "invalid choice: 'shaw'" in capsys.readouterr().err


def test_show_prints_the_tree_with_norms(capsys):
    code, out, _ = run(capsys, "show", PROBE / "complete")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "step0/rank: pytorch, mix, tensor, 8 records, complete"
    assert "  first non-finite value: Torch.log.0.forward.input_args.0 (1 NaN, 1 +Inf)" in lines
    assert "  matched nothing: list 'lineer'; nearest: linear" in lines
    at = lines.index("Module.fc.Linear.forward.0  [recompute]")
    assert lines[at + 1].split() == ["input_args.0", "float32[2,2]", "norm", "5.47723"]
    assert "  Functional.linear.0.forward" in lines[at:]
    assert "  Module.fc.Linear.parameters_grad" in lines[at:]
    assert "Torch.log.0.forward  [raised ValueError: no logarithm today]" in lines
    (bad,) = [line for line in lines if "NOT FINITE" in line]
    assert "norm nan" in bad and "1 NaN, 1 +Inf" in bad


def names(out):
    """The record names in the output, with their indentation."""
    return [
        line.partition("  [")[0] for line in out.splitlines() if line.lstrip()[:7] in ("Module.", "Functio")
    ]


def test_show_filters(capsys):
    dump = CORPUS / "torch" / "conv_mix_statistics" / "dump"
    _, out, _ = run(capsys, "show", dump, "--brief", "--filter", "relu.0.forward")
    assert names(out) == ["Module.relu1.ReLU.forward.0", "  Functional.relu.0.forward"]
    _, out, _ = run(capsys, "show", dump, "--brief", "--level", "L0", "--filter", "conv1")
    # (msprobe left relu2 on its stack, so it says that conv1's backward ran inside relu2's.)
    assert [name.strip() for name in names(out)] == [
        "Module.conv1.Conv2d.forward.0",
        "Module.conv1.Conv2d.parameters_grad.0",
        "Module.relu2.ReLU.backward.0",
        "Module.conv1.Conv2d.backward.0",
    ]
    _, out, _ = run(capsys, "show", dump, "--brief", "--depth", "1", "--filter", "conv1.Conv2d.forward")
    assert names(out) == ["Module.conv1.Conv2d.forward.0"]
    _, out, _ = run(capsys, "show", dump, "--brief", "--depth", "1")
    assert "  ... 1 inside" in out.splitlines()
    _, out, _ = run(capsys, "show", dump, "--brief", "--filter", "nothing of the sort")
    assert "(no record matches" in out
    _, out, _ = run(capsys, "show", dump, "--brief", "--stack", "--filter", "conv1.Conv2d.forward")
    assert "@ File " in out and "models.py, line 23" in out and "site-packages" not in out


def test_show_finds_what_is_not_finite(capsys):
    code, out, _ = run(capsys, "show", CORPUS / "torch" / "misc2_nan_oc" / "dump", "--bad")
    assert code == 0
    bad = [line for line in out.splitlines() if "NOT FINITE" in line]
    assert any("Infinity" not in line and "+Inf" in line for line in bad) and any(
        "NaN" in line for line in bad
    )
    code, out, _ = run(capsys, "show", CORPUS / "torch" / "conv_L1_statistics" / "dump", "--bad")
    assert "(no record matches" in out


def test_show_prints_what_it_can_of_a_broken_dump(capsys, tmp_path):
    shutil.copytree(PROBE / "torn" / "step0" / "rank", tmp_path / "step0" / "rank0")
    shutil.copytree(PROBE / "complete" / "step0" / "rank", tmp_path / "step0" / "rank1")
    (tmp_path / "step0" / "rank1" / "dump.json").write_text("{")
    code, out, err = run(capsys, "show", tmp_path, "--brief")
    assert code == 1
    assert "step0/rank0: pytorch, mix, tensor, 7 records, interrupted: run 'probe recover'" in out
    assert "Module.head.Linear.forward.0  [incomplete]" in out
    assert "rank1/dump.json is cut short" in err


@pytest.mark.parametrize(
    "where", ["torch/conv_L1_statistics", "mindspore/L0_statistics", "torch/misc_debug_tensor"]
)
def test_show_prints_each_record_once(capsys, where):
    (rank,) = probe_format.open(CORPUS / where / "dump").ranks
    _, out, _ = run(capsys, "show", CORPUS / where / "dump", "--brief")
    shown = [line.strip().partition("  [")[0] for line in out.splitlines()]
    assert all(shown.count(name) == 1 for name in rank.records.names)


def test_a_construct_that_goes_in_circles_is_shown(capsys, tmp_path):
    shutil.copytree(PROBE / "complete", tmp_path / "dump")
    path = tmp_path / "dump" / "step0" / "rank" / "construct.json"
    a, b = "Module.fc.Linear.forward.0", "Functional.linear.0.forward"
    path.write_text(f'{{"{a}": "{b}", "{b}": "{a}"}}')
    code, out, _ = run(capsys, "show", tmp_path / "dump", "--brief")
    assert code == 0 and a in out and b in out


def command(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(probe_format.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "probe_format", *map(str, arguments)], env=environment, text=True, **options
    )


def test_python_m_probe_format_is_the_command():
    done = command("verify", PROBE / "torn", capture_output=True)
    assert done.returncode == 3 and done.stdout.startswith("torn")
    assert command("--version", capture_output=True).stdout.startswith("probe-format ")


def test_a_reader_that_goes_away_is_no_error():
    dump = CORPUS / "mindspore" / "v1.2.2_venv210_mix_shim1" / "dump"
    read, write = os.pipe()
    os.close(read)
    done = command("show", dump, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 0 and done.stderr == ""
