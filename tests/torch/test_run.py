"""`probe run`: what it records is what a careful user has recorded by hand, and the run's bits are its own."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import loops
import models_alike
import pytest
import torch
from launching import FORKS
from probe_runtime.auto import Containment
from probe_torch.loop.scene import TorchScene
from recorded import recorded

LOOPS = Path(loops.__file__)
KEYS = ["--level", "mix", "--task", "statistics", "--step", "[1, 2]"]
#: loop -> (keys that it needs, what is said besides the line on what was found)
ALL: dict[str, tuple[list[str], str]] = {
    "between": ([], ""),
    "accumulating": ([], ""),
    "scaled": ([], ""),
    "lbfgs": ([], ""),
    "gan": ([], "the 2 optimizers take turns"),
    "gan_as_one": (["--step_ends", "all"], ""),
    "critics": (["--step_ends", "last:0"], ""),
    "frozen": ([], "its model was called in evaluation mode only"),
    "in_backward": ([], ""),
    "sam": ([], ""),
    "evaluated_within": ([], ""),
    "checkpointed": ([], ""),
    "compiled": ([], ""),
    "averaged": ([], ""),
    "distilled": ([], ""),
    "taught_by_itself": ([], ""),
    "traced": ([], ""),
    "wrapped": ([], ""),
    "in_two_parts": ([], ""),
    "by_all_optimizers": ([], ""),
    "unfrozen": ([], ""),
    "adversarial": ([], ""),
    "reinforced": ([], ""),
    "mixed_up": ([], ""),
    "swapped": ([], ""),
    "with_memory": ([], ""),
    "learning_to_learn": ([], ""),
    "by_a_method": ([], ""),
    "contrasted": ([], ""),
    "without_optimizer": (["--step_ends", "calls:__main__:one_step", "--models", "[Net]"], ""),
    "by_a_function": (["--step_ends", "calls:__main__:two_updates"], ""),
    "failing": ([], ""),
    "uncalled": ([], "no call of its model was seen"),
}


pytestmark = pytest.mark.slow


def run(folder: Path, *words: str, ends: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a script, "run" with its words as `probe run` does it, from a folder that is made."""
    folder.mkdir(exist_ok=True)
    command = ("-m", "probe_format", *words) if words[0] == "run" else words
    return FORKS.run(*command, cwd=folder, ends=ends)


#: These run in processes of their own: one is compiled as what ran before makes it, one ends its process by an error.
ALONE = ("compiled", "failing")


def all_loops(folder: Path, *words: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """Return for each loop what it prints, and what its process says on stderr."""
    found = {}
    for names in ([loop for loop in ALL if loop not in ALONE], *([loop] for loop in ALONE)):
        done = run(folder, str(LOOPS), ",".join(names), *words, ends=int(names == ["failing"]))
        for name, line in zip(names, done.stdout.splitlines(keepends=True) or [""], strict=True):
            found[name] = subprocess.CompletedProcess(done.args, done.returncode, line, done.stderr)
    return found


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    return all_loops(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def by_hand(plain_runs: dict[str, subprocess.CompletedProcess[str]], tmp_path_factory: Any) -> Path:
    """Return the folder where the dump of each loop that records itself has its name."""
    folder: Path = tmp_path_factory.mktemp("hand")
    recording = all_loops(folder, "hand", str(folder))
    assert {loop: run.stdout for loop, run in recording.items()} == {
        loop: run.stdout for loop, run in plain_runs.items()
    }
    return folder


@pytest.mark.parametrize("loop", ALL)
def test_a_loop_is_recorded_as_by_hand(
    plain_runs: dict[str, subprocess.CompletedProcess[str]], by_hand: Path, loop: str, tmp_path: Path
) -> None:
    (keys, said), plain = ALL[loop], plain_runs[loop]
    words = [*KEYS, "--dump_path", "dump", *keys, str(LOOPS), loop]
    found = run(tmp_path, "run", *words, ends=plain.returncode)
    assert found.stdout == plain.stdout
    lines = [line for line in found.stderr.splitlines() if line.startswith("Probe: ")]
    assert lines.pop(0).startswith("Probe: found the model ")
    assert [said in line for line in lines] == [True] * bool(said)
    expected, found_now = recorded(by_hand / loop), recorded(tmp_path / "dump")
    assert found_now == expected
    assert len(found_now) >= 4
    if loop == "failing":  # whose traceback begins with the user's line
        began = "Traceback (most recent call last):"
        one, other = (text.stderr.partition(began)[2].splitlines()[:3] for text in (plain, found))
        assert one == other and "loops.py" in one[1]


def test_the_header_says_what_was_found(tmp_path: Path) -> None:
    run(tmp_path, "run", *KEYS, "--dump_path", "dump", "--models", "[Net]", str(LOOPS), "between")
    header = json.loads((tmp_path / "dump" / "step1" / "rank" / "dump.json").read_text())
    assert header["found"] == {"models": ["Net"], "optimizers": ["AdamW"], "step_ends": "update"}


@pytest.mark.parametrize(("first", "name"), [("40", "step40"), ("auto", "step0")])
def test_the_first_step_is_whole_whatever_its_number(first: str, name: str, tmp_path: Path) -> None:
    """The loss's function is looked up before the model is called, and the number is known after that."""
    keys = ["--step", first.replace("auto", "0"), "--first_step", first, "--dump_path", "dump"]
    run(tmp_path, "run", "--level", "mix", *keys, str(LOOPS), "distilled")
    assert [path.name for path in (tmp_path / "dump").iterdir()] == [name]
    data = json.loads((tmp_path / "dump" / name / "rank" / "dump.json").read_text())["data"]
    assert {"Functional.mse_loss.0.forward", "Functional.mse_loss.0.backward"} <= set(data)


def test_a_run_without_a_step_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "run", "--dump_path", "dump", "--level", "L1", str(LOOPS), "without_optimizer")
    assert "no step was found, so nothing is recorded: no optimizer was there" in done.stderr
    assert not list((tmp_path / "dump").glob("step*"))


@pytest.mark.parametrize("models", [[], ["--models", "[Neet]"]])
def test_a_step_without_a_model_is_no_call_that_never_came(models: list[str], tmp_path: Path) -> None:
    rule = ["--step_ends", "calls:__main__:one_step", "--dump_path", "dump", "--level", "mix", *models]
    said = run(tmp_path, "run", *rule, str(LOOPS), "without_optimizer").stderr
    assert "recorded: __main__:one_step was called, but there was no model." in said
    assert ("there is no model yet" in said) == (not models)
    assert ("no module is of a class that models names: Neet" in said) == bool(models)


LATE = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def one_step():
    for _ in range(2):
        net(torch.ones(2)).sum().backward()
        optimizer.step()
        {}
for _ in range(3):
    list(one_step() or ())
"""


@pytest.mark.parametrize(
    ("last", "told", "steps"),
    [
        ("pass", "was found in the middle of its first call", ["step4", "step5", "step6"]),
        ("yield", "a call of __main__:one_step returns before it runs", []),
    ],
)
def test_a_function_that_is_found_late_is_said(
    last: str, told: str, steps: list[str], tmp_path: Path
) -> None:
    script, dump = tmp_path / "late.py", tmp_path / "dump"
    script.write_text(LATE.format(last))
    keys = ["--dump_path", str(dump), "--first_step", "4", "--step_ends", "calls:__main__:one_step"]
    said = run(tmp_path, "run", *keys, str(script)).stderr
    assert said.count(told) == 1
    assert ("step 4 has what ran" in said) == bool(steps)
    assert sorted(path.name for path in dump.glob("step*")) == steps


def test_a_model_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    keys = ["--dump_path", "dump", "--level", "L0", "--models", "[Ned]"]
    said = run(tmp_path, "run", *keys, str(LOOPS), "between").stderr
    assert said.count("no module is of a class that models names: Ned.") == 1
    assert said.count("an optimizer has stepped, and no model was found") == 1


def test_an_optimizer_that_is_made_while_models_are_looked_for_is_not_lost() -> None:
    """By another thread: to look takes a tenth of a second."""
    nets: list[torch.nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []

    def make(scene: TorchScene) -> None:
        nets.append(torch.nn.Linear(2, 2))
        optimizers.append(torch.optim.SGD(nets[-1].parameters(), 0.1))
        scene.add(optimizers[-1])

    class Interrupted(TorchScene):
        def held(self) -> Containment:
            found = super().held()
            if len(nets) == 1:
                make(self)
            return found

    scene = Interrupted()  # which knows all optimizers of this process
    make(scene)
    scene.models()
    assert [*map(scene.has, optimizers)] == [True, True]
    assert {*map(id, nets)} <= {*map(id, scene.models())}
    assert [scene.root_of(net) for net in nets] == nets


def test_a_first_call_with_other_weights_is_of_the_model_however_late_the_search_begins() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scene, roots = TorchScene(), []
    handle = net.register_forward_pre_hook(lambda module, _: roots.append(scene.root_of(module)))
    with handle:
        torch.func.functional_call(net, {k: p * 2 for k, p in net.named_parameters()}, torch.ones(2))
    assert scene.has(optimizer)
    assert roots == [net]


def test_a_model_whose_holder_is_gone_is_looked_for_again() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    holder = torch.nn.Sequential(net)
    scene = TorchScene()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scene.add(optimizer)
    assert scene.root_of(net) is holder
    del holder
    gc.collect()
    assert scene.root_of(net) is net


@pytest.mark.parametrize("when", ["collected", "never"])
def test_models_of_one_class_are_numbered_as_they_were_made(when: str, tmp_path: Path) -> None:
    words = models_alike.write(
        tmp_path, imports="from torch import nn, ones", kind="Module", method="forward", tensor="ones(2)"
    )
    run(tmp_path, *words, when)
    data = json.loads((tmp_path / "dump/step0/rank/dump.json").read_text())["data"]
    assert list(data) == [f"Module.{i}.inner.{kind}.forward.0" for i, kind in enumerate(models_alike.KINDS)]


THREADS = """
import threading, torch
def train(seed):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    ready.wait()
    for _ in range(15):
        net(torch.ones(4)).sum().backward()
        optimizer.step()
ready = threading.Barrier(2)
threads = [threading.Thread(target=train, args=[seed]) for seed in range(2)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_threads_that_train_at_once_lose_no_step(tmp_path: Path) -> None:
    script, dump = tmp_path / "threads.py", tmp_path / "dump"
    script.write_text(THREADS)
    said = run(tmp_path, "run", "--dump_path", str(dump), "--level", "mix", str(script)).stderr
    assert "RuntimeWarning" not in said
    assert not list(dump.rglob("records.journal"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level", "L3", "x.py"], "level"),
        (["--step_ends", "al", "x.py"], "Did you mean 'all'?"),
        (["--stpe", "1", "x.py"], "--stpe is not a key of the configuration. Did you mean 'step'"),
        (["--max-bytes", "10GB", "x.py"], "Write digits alone, without a unit"),
        (["--level", "x.py"], "are required: SCRIPT\n"),
        (["nowhere.py"], "nowhere.py cannot be read: No such file"),
        (["-m", "no.such.module"], "no.such.module"),
        (["--config", "nowhere.yaml", "x.py"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_run_is_said_before_it_runs(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("print('ran')")
    done = run(tmp_path, "run", *words, ends=2)
    assert not done.stdout and said in done.stderr


BY_COMMAND = ["run", "--level", "L0", "--dump_path", "dump", "x.py"]


def test_a_script_without_a_framework_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import sys; print('ran'); sys.exit(3)")
    program = [sys.executable, "-m", "probe_format", *BY_COMMAND]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (3, "ran\n")
    assert "nothing is recorded: the script imported none of " in done.stderr


OWN = """
import torch
from probe_torch import PrecisionDebugger
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
debugger = PrecisionDebugger(dump_path="own", level="L0")
debugger.start(model)
model(torch.ones(2)).sum().backward()
optimizer.step()
debugger.stop()
debugger.step()
"""


def test_a_script_that_calls_probe_itself_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(OWN)
    done = run(tmp_path, *BY_COMMAND)
    assert "the script has a PrecisionDebugger of its own" in done.stderr
    assert (tmp_path / "own" / "step0" / "rank" / "dump.json").is_file()
    assert not list((tmp_path / "dump").glob("step*"))


WORKERS = """
import torch
if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    loader = torch.utils.data.DataLoader(data, 4, num_workers=1, multiprocessing_context="spawn")
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
"""


def test_processes_that_train_nothing_are_silent(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(WORKERS)
    done = run(tmp_path, *BY_COMMAND)
    assert [line for line in done.stderr.splitlines() if "Probe" in line] == [
        "Probe: found the model Sequential and the optimizer SGD; a step ends with an update (step_ends: update)."
    ]
    assert len(list((tmp_path / "dump").glob("step*"))) == 2


CHILD = """
import subprocess, sys
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, sys.argv[0], "child"]).returncode)
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(4)).sum().backward()
optimizer.step()
"""


def test_a_process_that_the_script_starts_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(CHILD)
    run(tmp_path, *BY_COMMAND)
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / "dump").glob("step*/*/dump.json")] == [
        "dump/step0/rank/dump.json"
    ]


def test_one_line_and_the_environment_do_the_same(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import probe_torch.auto\n" + CHILD.replace("sys.argv) == 1", "sys.argv) == 9")
    )
    (tmp_path / "probe.yaml").write_text("level: L0\ndump_path: dump\n")
    FORKS.run("x.py", cwd=tmp_path, PROBE_CONFIG="probe.yaml")
    assert (tmp_path / "dump" / "step0" / "rank" / "dump.json").is_file()
