"""The command ``probe``."""

import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import probe_format
import pytest
from corpus_cases import CORPUS, PROBE, copied, dumped, ranks_of
from probe_format.cli import dump_commands
from probe_format.cli.main import main, versions
from probe_format.errors import UsageError
from probe_format.tensors import native


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
    ranks_of(tmp_path, "complete", "torn")
    assert run(capsys, "verify", tmp_path)[0] == 3
    assert run(capsys, "verify", tmp_path, "--rank", 0)[0] == 0
    code, _, err = run(capsys, "verify", tmp_path, "--rank", 7)
    assert code == 1 and "it has step0/rank0, step0/rank1" in err


@pytest.mark.parametrize(("readable", "code"), [(2, 3), (0, 1)])
def test_recover_goes_on_where_a_rank_cannot_be_written(capsys, tmp_path, readable, code):
    ranks_of(tmp_path, "torn", "torn", "torn")
    for rank in range(3):
        where = tmp_path / "step0" / f"rank{rank}"
        if rank == 0 or not readable:
            (where / "dump.json").unlink(missing_ok=True)
            (where / "dump.json" / "in the way").mkdir(parents=True)
    found, out, err = run(capsys, "recover", tmp_path)
    assert found == code and out.count("whole ") == readable
    assert "probe recover: step0/rank0: " in err and "dump.json" in err


def test_recover_exits_0_3_1(capsys, tmp_path):
    for case, code, says in (
        ("torn", 0, "whole"),
        ("damaged_journal", 3, "partial"),
        ("v1_torn", 0, "whole"),
        ("v1_damaged_journal", 3, "partial"),
        ("complete", 1, "nothing"),
    ):
        copied(tmp_path, case, case)
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
    assert "there is no command 'shaw'. Did you mean 'show'?" in capsys.readouterr().err


def test_show_prints_the_tree_with_norms(capsys):
    code, out, _ = run(capsys, "show", PROBE / "complete")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "step0/rank: pytorch, mix, tensor, 8 records, complete"
    assert "  first non-finite value: Torch.log.0.forward.input_args.0 (1 NaN, 1 +Inf)" in lines
    assert "  matched nothing: list 'lineer'; nearest: linear" in lines
    at = lines.index("Module.fc.Linear.forward.0  [recompute]")
    assert lines[at + 1].split()[:6] == ["input_args.0", "float32[2,2]", "mean", "2.5", "norm", "5.47723"]
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
    code, out, _ = run(capsys, "show", CORPUS / "torch" / "misc2_nan_oc" / "dump", "--bad", "--all")
    assert code == 0
    bad = [line for line in out.splitlines() if "NOT FINITE" in line]
    assert any("Infinity" not in line and "+Inf" in line for line in bad) and any(
        "NaN" in line for line in bad
    )
    code, out, _ = run(capsys, "show", CORPUS / "torch" / "conv_L1_statistics" / "dump", "--bad")
    assert "everything recorded is finite" in out


FINITE = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": -2.0, "Mean": -0.5,
          "Norm": 2.23606797749979, "requires_grad": False}  # fmt: skip


def holding(**counts):
    words = ("nan_count", "posinf_count", "neginf_count", "finite_max", "finite_min")
    broken = {"Max": "NaN", "Min": "NaN", "Mean": "NaN", "Norm": "NaN", **dict.fromkeys(words, 0), **counts}
    return {**FINITE, **broken}


NAN, INF = holding(nan_count=2), holding(posinf_count=1, Max="Infinity", Min=1.0)


def call(given, gave):
    return {"input_args": given, "input_kwargs": {}, "output": gave}


def test_bad_tells_where_it_began_before_it_counts(capsys, tmp_path):
    linear, layer = "Functional.linear.0.forward", "Module.a.Linear.forward.0"
    dump = dumped(
        tmp_path / "d" / "step0" / "rank",
        {
            "Torch.add.0.forward": call([FINITE], [FINITE]),
            "Torch.full.0.forward": call([], [INF]),
            "Functional.softmax.0.forward": call([INF], [NAN]),
            linear: call([NAN], [NAN]),
            layer: call([NAN], [NAN]),
            **{f"Torch.mul.{i}.forward": call([NAN], [NAN]) for i in range(30)},
            "Torch.mul.0.backward": {"input": [FINITE], "output": [NAN]},
            "Module.a.Linear.parameters_grad": {"weight": [NAN]},
        },
        construct={linear: layer, layer: None},
    )
    code, out, _ = run(capsys, "show", dump, "--bad")
    lines = out.splitlines()
    assert code == 0
    assert lines[2] == (
        "first not finite: Torch.full.0.forward, output.0 (1 +Inf): made there; its inputs are finite"
    )
    assert lines[3] == (
        "first NaN: Functional.softmax.0.forward, output.0 (2 NaN): made there; its inputs have none, but "
        "input_args.0 (1 +Inf)"
    )
    assert lines[4] == "not finite: 36 of 37 records (35 with NaN); 1 made it from finite inputs"
    assert lines[5] == "  made by Torch.full.0.forward, output.0 (1 +Inf)"
    assert len(lines) < 30 and any("more lines: --all" in line for line in lines)
    _, out, _ = run(capsys, "show", dump, "--bad", "--all")
    assert out.count("NOT FINITE") == 69 and "--all" not in out


def test_bad_names_the_outermost_call_that_was_given_it(capsys, tmp_path):
    inner, outer = "Functional.linear.0.forward", "Module.a.Linear.forward.0"
    data = {
        inner: call([FINITE, INF], [INF]),
        outer: {**call([FINITE], [INF]), "parameters": {"weight": INF}},
    }
    dump = dumped(tmp_path / "d" / "step0" / "rank", data, construct={inner: outer, outer: None})
    _, out, _ = run(capsys, "show", dump, "--bad")
    assert out.splitlines()[2] == (
        "first not finite: Module.a.Linear.forward.0, parameters.weight (1 +Inf): given to this call, made by "
        "nothing recorded before"
    )
    assert "made it from finite inputs" not in out


def test_bad_claims_nothing_of_values_that_were_saved(capsys, tmp_path):
    data = {"a.0.debug": FINITE, "b.0.debug": {"x": NAN}, "c.0.debug": NAN}
    dump = dumped(tmp_path / "d" / "step0" / "rank", data)
    _, out, _ = run(capsys, "show", dump, "--bad")
    assert out.splitlines()[2:4] == [
        "first not finite: b.0.debug, x (2 NaN)", "not finite: 2 of 3 records (2 with NaN)",
    ]  # fmt: skip


def test_bad_looks_at_the_forward_call_of_a_backward_one(capsys, tmp_path):
    data = {
        "Torch.log.0.forward": call([INF], [INF]),
        "Torch.log.0.backward": {"input": [FINITE], "output": [NAN]},
    }
    _, out, _ = run(capsys, "show", dumped(tmp_path / "d" / "step0" / "rank", data), "--bad")
    assert out.splitlines()[3] == (
        "first NaN: Torch.log.0.backward, output.0 (2 NaN): made there; its inputs are finite, but "
        "Torch.log.0.forward, input_args.0 (1 +Inf), output.0 (1 +Inf)"
    )


def test_a_structure_dump_is_shown_as_a_tree(capsys, tmp_path):
    inner, outer = "Functional.linear.0.forward", "Module.a.Linear.forward.0"
    frames = ["File /home/me/train.py, line 3, in step, \n model(x)"]
    dump = dumped(
        tmp_path / "d" / "step0" / "rank",
        {},
        task="structure",
        construct={inner: outer, outer: None, "Torch.add.0.forward": None},
        stack={"0": [[inner, outer], frames]},
    )
    _, out, _ = run(capsys, "show", dump)
    assert out.splitlines() == [
        "step0/rank: pytorch, mix, structure, 3 nodes, no values", "", outer, f"  {inner}", "Torch.add.0.forward", "",
    ]  # fmt: skip
    _, out, _ = run(capsys, "show", dump, "--stack", "--filter", "Linear", "--depth", 1)
    assert out.splitlines()[2:4] == [outer, "  @ File /home/me/train.py, line 3, in step, model(x)"]
    _, out, _ = run(capsys, "show", dump, "--level", "L1", "--filter", "add")
    assert out.splitlines()[2:] == ["Torch.add.0.forward", ""]


def test_the_stacks_line_is_the_innermost_that_is_no_frameworks(capsys, tmp_path):
    site = "/usr/lib/python3.11/site-packages"
    frames = {
        "hf": [f"{site}/torch/nn/modules/module.py", f"{site}/transformers/models/bert/modeling_bert.py",
               f"{site}/torch/nn/modules/module.py", "/home/me/train.py"],
        "ctx": ["/usr/lib/python3.11/contextlib.py", f"{site}/torch/utils/_contextlib.py", "/home/me/torch/run.py"],
        "ms": [f"{site}/mindspore/nn/cell.py", f"{site}/probe_mindspore/x.py", f"{site}/mindnlp/bert.py"],
        "none": [f"{site}/torch/a.py", f"{site}/torch/b.py"],
    }  # fmt: skip
    expected = {
        "hf": "modeling_bert.py", "ctx": "/home/me/torch/run.py", "ms": "mindnlp/bert.py", "none": "torch/a.py"
    }  # fmt: skip
    data, stack = {}, {}
    for i, (what, files) in enumerate(frames.items()):
        data[f"Torch.{what}.0.forward"] = call([FINITE], [FINITE])
        lines = [f"File {file}, line {n}, in f, \n x" for n, file in enumerate(files)]
        stack[str(i)] = [[f"Torch.{what}.0.forward"], lines]
    dump = dumped(tmp_path / "d" / "step0" / "rank", data, stack=stack)
    _, out, _ = run(capsys, "show", dump, "--stack", "--brief")
    lines = out.splitlines()
    for what, file in expected.items():
        assert f"{file}, line " in lines[lines.index(f"Torch.{what}.0.forward") + 1]


def test_full_has_every_number_and_every_argument(capsys, tmp_path):
    given = [FINITE, {"type": "int", "value": 3}, None, [{"type": "str", "value": "a\nb"}]]
    record = {
        "input_args": given,
        "input_kwargs": {
            "dim": {"type": "int", "value": -1},
            "f": {"type": "x.Y", "value": None, "unsupported": "no encoding for this type"},
            "s": {"type": "slice", "value": [None, 2, None]},
            "long": {"type": "str", "value": "x" * 5000},
        },
        "output": [{**FINITE, "md5": "0badcafe", "data_name": "y.pt"}],
        "in_backward": True,
    }
    dump = dumped(tmp_path / "d" / "step0" / "rank", {"Torch.sum.0.forward": record})
    _, out, _ = run(capsys, "show", dump, "--full")
    rows = [line.split() for line in out.splitlines()[3:] if line]
    numbers = [
        "max",
        "1.0",
        "min",
        "-2.0",
        "mean",
        "-0.5",
        "norm",
        "2.23606797749979",
        "requires_grad",
        "false",
    ]
    assert rows[0] == ["input_args.0", "float32[2]", *numbers]
    assert rows[1] == ["output.0", "float32[2]", *numbers, "file", "y.pt", "checksum", "0badcafe"]
    assert rows[2:7] == [
        ["input_args.1", "int", "3"],
        ["input_args.2", "None"],
        ["input_args.3.0", "str", "a", "b"],
        ["input_kwargs.dim", "int", "-1"],
        ["input_kwargs.f", "x.Y", "not", "recorded:", "no", "encoding", "for", "this", "type"],
    ]
    assert rows[7] == ["input_kwargs.s", "slice", "[null,2,null]"]
    assert len(rows) == 9 and len(rows[8][2]) == 203
    _, out, _ = run(capsys, "show", dump)
    assert out.splitlines()[-2].split()[-6:] == ["mean", "-0.5", "norm", "2.23607", "checksum", "0badcafe"]


def test_records_are_chosen_by_their_label(capsys, tmp_path):
    data = {f"Torch.sum.{n}.forward": {**call([FINITE], [FINITE]), "label": f"req {n}"} for n in range(12)}
    data["Torch.sum.3.backward"] = {"input": [FINITE], "output": [FINITE]}
    data["Torch.sum.12.forward"] = call([FINITE], [FINITE])
    dump = dumped(tmp_path / "d" / "step0" / "rank", data, labels=[f"req {n}" for n in range(12)])
    _, out, _ = run(capsys, "show", dump, "--brief", "--label", "req 3")
    lines = out.splitlines()
    ten = ", ".join(f"req {n}" for n in range(10))
    assert lines[1] == f"  labels: {ten}, and 2 more"
    assert lines[3:5] == ["Torch.sum.3.forward  [label req 3]", "Torch.sum.3.backward"]
    assert run(capsys, "show", dump, "--label", "req")[1].splitlines()[-2].startswith("(no record matches")


def test_graph_and_pynative_are_told_apart(capsys, tmp_path):
    for mode in ("graph", "pynative"):
        ours = {**FINITE, "type": "mindspore.Tensor", "dtype": "Float32"}
        data = {f"Mint.{mode}.0.forward": call([], [ours])}
        dumped(tmp_path / "d" / mode / "step0" / "rank", data, framework="mindspore")
    _, out, _ = run(capsys, "show", tmp_path / "d", "--brief")
    heads = [line.partition(":")[0] for line in out.splitlines() if "step0" in line]
    assert heads == ["graph/step0/rank", "pynative/step0/rank"]
    _, out, _ = run(capsys, "show", tmp_path / "d", "--brief", "--mode", "graph")
    assert "Mint.graph" in out and "Mint.pynative" not in out
    code, _, err = run(capsys, "show", tmp_path / "d" / "graph", "--mode", "pynative")
    assert code == 1 and "it has graph/step0/rank" in err
    dump = probe_format.open(tmp_path / "d")
    assert [(step.number, step.mode) for step in dump.steps] == [(0, "graph"), (0, "pynative")]
    assert dump.step(0, "pynative").ranks[0].mode == "pynative"
    with pytest.raises(UsageError, match=r"step 0 2 times.*step\(0, 'graph'\)"):
        dump.step(0)
    with pytest.raises(KeyError, match=r"it has \[0 \(graph\), 0 \(pynative\)\]"):
        dump.step(1)


@pytest.mark.parametrize("framework", ["pytorch", None])  # msprobe 1 does not write it
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_dump_of_torch_in_a_folder_of_that_name_has_no_mode(framework, mode, capsys, tmp_path):
    rank = tmp_path / mode / "step0" / "rank0"
    dumped(rank, {"Torch.add.0.forward": call([FINITE], [FINITE])}, framework=framework)
    for path in (tmp_path / mode, rank.parent, rank, tmp_path):
        (step,) = probe_format.open(path).steps
        assert (step.mode, step.ranks[0].label) == (None, "step0/rank0")


def test_a_killed_run_of_torch_in_a_folder_of_that_name_has_no_mode(tmp_path):
    copied(tmp_path, "torn", "graph")
    assert {rank.mode for rank in probe_format.open(tmp_path / "graph").ranks} == {None}


@pytest.mark.parametrize("option", ["--depth", "--step", "--rank"])
@pytest.mark.parametrize("value", ["-1", "x", "1.5", "\u0663", "9" * 30])
def test_numbers_that_are_none_are_refused(capsys, option, value):
    with pytest.raises(SystemExit) as caught:
        main(["show", "d", f"{option}={value}"])
    assert caught.value.code == 2 and "not a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("llama.py", "import torch\n", "is not a dump"),
        ("dump.txt", '{"data": {}}', "is not a dump"),
        ("config.json", '{"task": "statistics"}', "is not a dump"),
        ("stack.json", "{}", "give its folder"),
        ("records.journal", "x", "give its folder"),
    ],
)
@pytest.mark.parametrize("command", ["show", "verify", "recover"])
def test_a_file_that_is_no_dump_is_not_a_damaged_one(capsys, tmp_path, name, text, says, command):
    (tmp_path / name).write_text(text)
    code, _, err = run(capsys, command, tmp_path / name)
    assert code == 1 and says in err


def test_help_keeps_its_capitals(capsys):
    with pytest.raises(SystemExit):
        main(["recover", "--help"])
    assert "Write the JSON files" in capsys.readouterr().out


def test_show_prints_what_it_can_of_a_broken_dump(capsys, tmp_path):
    ranks_of(tmp_path, "torn", "complete")
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
    path = copied(tmp_path) / "construct.json"
    a, b = "Module.fc.Linear.forward.0", "Functional.linear.0.forward"
    path.write_text(f'{{"{a}": "{b}", "{b}": "{a}"}}')
    code, out, _ = run(capsys, "show", tmp_path / "dump", "--brief")
    assert code == 0 and a in out and b in out


@pytest.fixture
def a_package(tmp_path, monkeypatch):
    """An installed package with two commands: one that works, and one that lacks a library of its own."""
    info = tmp_path / "site" / "a_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\nSummary: Count to 100 %.\n"
    )
    (info / "entry_points.txt").write_text(
        "[probe.commands]\ncount = a_package:count\nfail = a_package.broken:main\n"
    )
    package = tmp_path / "site" / "a_package"
    package.mkdir()
    (package / "__init__.py").write_text("def count(words):\n    print(words)\n    return len(words)\n")
    (package / "broken.py").write_text("import a_library_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_package"]:
        del sys.modules[name]


def test_any_package_can_add_a_command(capsys, a_package):
    assert run(capsys, "count", "x", "--all") == (2, "['x', '--all']\n", "")
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "count count to 100 % (package a-package)" in shown and "fail" in shown and "show" in shown
    with pytest.raises(SystemExit) as stop:
        main(["nonsense"])
    assert stop.value.code == 2
    assert "count" in capsys.readouterr().err


def test_a_fault_inside_a_package_is_not_taken_for_its_absence(a_package):
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_missing"):
        main(["fail"])


def test_a_command_of_ours_that_is_not_installed_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr("probe_format.cli.main.added_commands", dict)
    assert run(capsys, "diff", "a", "b") == (
        2, "", "probe diff: not installed here. Install it with: pip install probe-analysis\n"
    )  # fmt: skip


def test_ctrl_c_ends_a_command_without_a_traceback(capsys, monkeypatch):
    def stopped(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(dump_commands, "open", stopped)
    assert run(capsys, "show", PROBE / "complete") == (130, "", "probe show: stopped.\n")
    monkeypatch.setattr("probe_format.cli.main.added_commands", lambda: stopped(""))  # while it is loaded
    assert run(capsys, "diff", "a", "b") == (130, "", "probe: stopped.\n")


def command(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(Path(probe_format.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "probe_format", *map(str, arguments)], env=environment, text=True, **options
    )


def test_the_version_is_that_of_every_package_which_is_installed(capsys, monkeypatch):
    ours = {e.dist.name for e in entry_points(group="probe.commands") if e.dist.name.startswith("probe-")}
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    *lines, way = capsys.readouterr().out.splitlines()
    said = dict(line.split() for line in lines)
    assert stop.value.code == 0
    assert way.startswith(f"statistics: probe-fast ({native.WAY})" if native.WAY else "statistics: numpy; ")
    assert said.keys() >= {"probe-format", *ours}
    assert all(number == version(name) for name, number in said.items())
    monkeypatch.setattr(sys, "path", [])
    assert list(versions()) == []


def test_a_reader_that_goes_away_is_no_error():
    dump = CORPUS / "mindspore" / "v1.2.2_venv210_mix_shim1" / "dump"
    read, write = os.pipe()
    os.close(read)
    done = command("show", dump, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("case", ["torn_lost", "recovered_lost"])
def test_what_is_lost_is_told_with_its_reason(capsys, case):
    why = "gradient: the process ended before this was written"
    first = f"3 lost: Functional.linear.0.backward later_passes.0.input.0 ({why}), "
    assert f"({first}" in run(capsys, "verify", PROBE / case)[1]
    for view in ((), ("--full",), ("--brief",), ("--bad",)):
        out = run(capsys, "show", PROBE / case, *view)[1]
        assert first in out and ("Functional.linear.0.backward  [2 lost]" in out) == (view != ("--bad",))
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert (f"output.0 lost {why}" in lines) == (view in ((), ("--full",)))
        assert not any(line.endswith("lost null") for line in lines)
        assert ("everything recorded is finite, but for what is lost" in lines) == (view == ("--bad",))
    record = probe_format.open(PROBE / case).ranks[0].records["Module.fc.Linear.backward.0"]
    with pytest.raises(KeyError, match=rf"it is lost: {why}"):
        record.tensor("output.0")
