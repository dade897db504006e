"""What stands in one place: tasks in a table, frameworks in entry points, each promise in one docstring."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from members import EVERY, TWINS, tree
from probe_format.own_code import FRAMEWORKS
from probe_format.statistics import TABLE
from probe_format.task import TASKS

ROOT = Path(__file__).parents[2]
TREES = {name: tree(path) for name, path in EVERY.items() if not path.match("*/demo*")}


def constants(tree: ast.AST) -> set[str]:
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = (each.decode("latin") if isinstance(each, bytes) else each for each in found)
    return {each for each in texts if isinstance(each, str)}


def test_nobody_asks_for_a_task_by_its_name() -> None:
    """What it records, keeps and writes is asked of its row (`Config.kind`)."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and constants(node) & TASKS.keys() and "task" in ast.unparse(node)
    ]
    assert not wrong


# Module below the twins -> what of a format names a framework there.
FORMATS = {
    "probe_format.own_code": "the packages whose frames a stack may have",
    "probe_format.read.find": "the header of a dump.json, of which msprobe 1 has no other sign",
    "probe_analysis.calls.run": "the header of msprobe's dump.json, whose backward records are other ones",
    "probe_analysis.replay.replayer": "the header, which says whose package computes a call again",
    "probe_analysis.export.tables": "the header's key `mindspore`, a version",
    "probe_kernel": "the doors of its two halves",
    "probe_kernel.torch": "how one of PyTorch's calls is named in a request to Ascend's dumper",
    "probe_kernel.export.export": "the header of the dump.json that it writes",
    "probe_kernel.export.tensor_json": "names of types and dtypes in that dump.json",
    "probe_kernel.read.find": "layouts of kernel dumps",
    "probe_kernel.control.mindspore_run": "the kernel dump of MindSpore is asked of MindSpore",
    "probe_kernel.control.readiness": "the kernel dump of MindSpore is asked of MindSpore",
    "probe_kernel.ascend.api_watch": "Ascend's dumper is torch_npu's",
    "probe_kernel.ascend.acl": "Ascend's dumper is torch_npu's",
    "probe_kernel.ascend.replay": "Ascend's dumper is torch_npu's",
}


def test_below_the_twins_only_formats_name_a_framework() -> None:
    names = {*FRAMEWORKS, "pytorch"}
    found = {
        name for name, tree in TREES.items() if constants(tree) & names and name.split(".")[0] not in TWINS
    }
    assert found == FORMATS.keys()


def run(code: str, *more: Path) -> str:
    code = f"import sys; sys.path[:0] = {[*map(str, more)]!r}\n{textwrap.dedent(code)}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_statistic_is_named_by_its_row_and_its_kernels() -> None:
    """One that is asked for stands in the table, where the reference computes it, and where a plan makes it up.

    `Std` was tried: its row, five lines of `stats.py` (a field, its JSON, one for each of bool, integers, floats), a
    line of the specification, and `python -m probe_format.schema`. Then verify, show and diff had it.
    """
    asked = {each.key for each in TABLE if each.group == "asked"}
    places = {"probe_format.statistics", "probe_format.tensors.stats", "probe_torch.planning.planned_leaf"}
    keys = {"probe_runtime.config.keys"}  # of the configuration: what task `watch` does not heed
    assert {name for name, tree in TREES.items() if constants(tree) & asked} == places | keys


def test_a_new_task_is_a_row() -> None:
    """With it in the table, files and arguments have its section, `then` asks for it, a header may name it.

    Three files are touched: `probe_format/task.py`, its words in `probe_runtime/spec/config.md`, and
    `probe_runtime/config/settings.py`, which `python -m probe_runtime.config` writes. (The JSON Schema is made, too.)
    """
    code = """
        import probe_format.task as table
        table.TASKS["sample"] = table.Task("sample", "every tenth value", files=True)
        table.DUMPING += ("sample",)
        from probe_runtime.config import resolve
        from probe_format.schema.dump import check_dump
        config = resolve({"task": "sample", "sample": {"list": ["linear"]}, "dump_path": "x"})
        other = resolve({"when": "non_finite", "then": {"task": "sample"}, "dump_path": "x"})
        header = {"task": "sample", "level": "L1", "framework": "x", "dump_data_dir": None, "tool": "x"}
        problems = [*check_dump({**header, "format_version": "1.0"}, {})]
        print(config.list, config.wants_files, other.then.task, problems)
    """
    assert run(code) == "('linear',) True sample []"


def test_a_new_framework_is_an_entry_point(tmp_path: Path) -> None:
    """No line below the twins: a package says by its entry point which classes it knows, and probe-save finds it."""
    (tmp_path / "toy.py").write_text("class Array: pass\n")
    (tmp_path / "toy_probe.py").write_text("FRAMEWORK = 'toy'\ndef current_rank(): return 3\n")
    info = tmp_path / "toy_probe-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-probe\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[probe.frameworks]\ntoy = toy_probe\n")
    code = """
        import toy
        from probe_save.frameworks import current_rank, framework_of, home
        print(framework_of(type("Mine", (toy.Array,), {})), home("toy").FRAMEWORK, current_rank())
    """
    assert run(code, tmp_path) == "toy toy 3"


def promised() -> dict[str, set[str]]:
    """Module -> the tests and folders that its docstring says hold its promise."""
    said = {name: (ast.get_docstring(tree) or "").partition("\nPromise: ")[2] for name, tree in TREES.items()}
    return {name: set(re.findall(r"tests/[\w/]+(?:\.py)?", text)) for name, text in said.items() if text}


def test_each_promise_of_the_readme_has_one_place_and_the_tests_that_hold_it() -> None:
    table = (ROOT / "README.md").read_text().split("| promise | test |\n")[1].split("\n\n")[0]
    rows = []
    for row in table.splitlines()[1:]:
        tests = set(re.findall(r"`(tests/\w+(?:/\w+\.py)?)`", row.split("|")[2]))
        for part in row.split("|")[2].split(";"):
            files, folders = re.findall(r"`(\w+\.py)`", part), re.findall(r"`(tests/\w+)`", part)
            if files:
                tests = tests - {*folders} | {f"{folder}/{file}" for folder in folders for file in files}
        rows.append(tests)
    assert sorted(map(sorted, rows)) == sorted(map(sorted, promised().values()))
    missing = [test for tests in rows for test in tests if not (ROOT / test).exists()]
    assert not missing


def test_where_the_promises_are_is_on_the_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    assert all(f"`{name.replace('.', '/')}.py` (" in page for name in promised())


def test_what_never_ran_on_ascend_is_in_one_room() -> None:
    """`probe_kernel.ascend`, which says so: beside it only its two callers reach for torch_npu."""
    names = {"torch_npu", "torch_npu.npu"}
    found = {
        name for name, tree in TREES.items() if constants(tree) & names and name.startswith("probe_kernel")
    }
    assert found - {"probe_kernel.torch"} == {"probe_kernel.ascend.acl"}


#: Locks that a thread may not take twice, and why they do no harm.
ALLOWED_LOCKS = {
    "probe_kernel.convert.destination": "of a command, in which no signal handler of a user's runs",
    "probe_mindspore.graph.copied_graph": "says that a graph is done, and guards nothing",
    "probe_mindspore.graph.value_layouts": "held while a number is given, at compilation",
    "probe_runtime.collect.callsite": "taken without waiting",
}


def test_a_signal_handler_of_the_run_waits_for_no_lock_of_its_own_thread() -> None:
    """Python calls a handler, or a finalizer, between two instructions of ours: with a plain lock it waits for ever."""
    plain = [name for name, path in EVERY.items() if "threading.Lock" in path.read_text()]
    assert sorted(plain) == sorted(ALLOWED_LOCKS)
