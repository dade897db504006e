"""`probe run` with trainers whose loop is a library's: the bits of a run without it, the records of one by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trainers
from forks import Forks
from launching import FORKS
from recorded import recorded

pytestmark = pytest.mark.slow
SCRIPT = trainers.__file__
KEYS = ["--level", "mix", "--task", "statistics", "--step", "[1, 2]"]  # a later --step wins
IMPORTED = ["transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning", "accelerate"]
#: training -> (keys that it needs, steps that are dumped)
ALL: dict[str, tuple[list[str], list[int]]] = {
    "transformers": ([], [1, 2]),
    "resumed": (["--first_step", "auto", "--step", "[2, 3]"], [2, 3]),
    "lightning": (["--step", "[1, 2, 4]"], [1, 2]),  # the last validation is where a fifth step is awaited
    "lightning_turns": (["--step_ends", "all"], [1, 2]),
    "lightning_resumed": (["--first_step", "auto", "--step", "[2, 3]"], [2, 3]),
    "accelerate": ([], [1, 2]),
}
SETTINGS = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Runs:
    """Runs trainings, all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._forks = folder, Forks("warmed", *IMPORTED)
        self._said: dict[tuple[str, ...], tuple[str, str]] = {}
        for training in ("transformers", "lightning_checkpoints"):
            self(SCRIPT, training)  # leaves checkpoints

    def __call__(self, *words: str) -> tuple[str, str]:
        """Return what a command that ended well said on stdout and stderr; it is run once."""
        if words not in self._said:
            done = self._forks.run(*words, cwd=self.folder, **SETTINGS)
            self._said[words] = done.stdout, done.stderr
        return self._said[words]

    def by_hand(self, training: str, steps: list[int]) -> tuple[str, Path]:
        """Return what a training prints that records steps itself, and its dump."""
        dump = self.folder / f"{training}-hand"
        return self(SCRIPT, training, "hand", str(dump), json.dumps(steps))[0], dump


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("training", ALL)
def test_a_trainer_is_recorded_as_by_hand(runs: Runs, training: str) -> None:
    keys, steps = ALL[training]
    dump = runs.folder / f"{training}-auto"
    words = [*KEYS, "--dump_path", str(dump), *keys, SCRIPT, training]
    printed, said = runs("-m", "probe_format", "run", *words)
    by_hand, own = runs.by_hand(training, steps)
    assert printed == by_hand == runs(SCRIPT, training)[0]
    lines = [line for line in said.splitlines() if line.startswith("Probe: ")]
    assert [line[:23] for line in lines] == ["Probe: found the model "]
    found = recorded(dump)
    assert [path for path in found if "dump.json" in path] == [f"step{n}/rank/dump.json" for n in steps]
    assert found == recorded(own)


@pytest.mark.parametrize(
    ("training", "callback", "steps"),
    [
        ("transformers", "transformers_callback", [1, 2]),
        ("resumed", "transformers_callback_resumed", [2, 3]),
        ("lightning", "lightning_callback", [1, 2]),
        ("lightning_turns", "lightning_callback_turns", [1, 2]),
        ("lightning_resumed", "lightning_callback_resumed", [2, 3]),
        ("lightning_resumed_turns", "lightning_callback_resumed_turns", [4, 6]),
    ],
)
def test_a_callback_records_as_by_hand(runs: Runs, training: str, callback: str, steps: list[int]) -> None:
    by_hand, own = runs.by_hand(training, steps)
    dump = runs.folder / callback
    printed, said = runs(SCRIPT, callback, "hand", str(dump), json.dumps(steps))
    assert (printed, "Probe" in said) == (by_hand, False), said
    found = [calls(folder) for folder in (dump, own)]
    assert list(found[0]) == [f"step{n}/rank/dump.json" for n in steps]
    assert found[0] == found[1]


def calls(folder: Path) -> dict[str, list[Any]]:
    """Return the records of each step's modules, whose numbers nothing that comes before the forward can change."""
    return {
        path: [value for name, value in document["data"].items() if name.startswith("Module.")]
        for path, document in recorded(folder).items()
        if path.endswith("dump.json")
    }


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_library_that_is_missing_is_named(library: str) -> None:
    hidden = f"import sys; sys.modules['{library}'] = None; import probe_torch.callbacks.{library}"
    done = FORKS.run("-c", hidden, ends=1)
    assert f"pip install {library}" in done.stderr.splitlines()[-1]


TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--no-python",
    sys.executable,
]


def processes(folder: Path, *words: str) -> list[str]:
    """Return the lines that the processes of a training print until the last has ended, in alphabetical order."""
    settings = {**os.environ, **SETTINGS}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=settings)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("training", "steps", "launcher"),
    [("no_sync", "[1, 2]", TORCHRUN), ("lightning_ddp", "[0, 1]", [])],  # Lightning starts the second itself
    ids=["no_sync", "lightning_ddp"],
)
def test_two_processes_are_recorded_as_by_hand(
    tmp_path: Path, training: str, steps: str, launcher: list[str]
) -> None:
    """With its bits, which test_distributed.py holds against those of a run without Probe."""
    by_hand = processes(tmp_path, *launcher, SCRIPT, training, "hand", "hand", steps)
    run = "-m", "probe_format", "run", *KEYS, "--step", steps, "--dump_path", "dump"
    assert processes(tmp_path, *launcher, *run, SCRIPT, training) == by_hand
    found = recorded(tmp_path / "dump")
    numbers = json.loads(steps)
    assert {os.path.dirname(path) for path in found} == {
        f"step{n}/rank{rank}" for n in numbers for rank in (0, 1)
    }
    assert found == recorded(tmp_path / "hand")


@pytest.mark.parametrize(
    ("training", "found"),
    [
        ("lightning_broken_off", {"step0": False, "step1": True, "step2": True}),
        ("transformers_broken_off", {"step0": False, "step7": True}),
    ],
)
def test_a_training_that_broke_off_leaves_the_callback_usable(
    runs: Runs, training: str, found: dict[str, bool], tmp_path: Path
) -> None:
    """A step is open when an error or Ctrl-C ends a training; the next one begins with one of its own."""
    _, said = runs(SCRIPT, training, "hand", str(tmp_path), "[]")
    assert "Probe" not in said, said
    assert steps_in(tmp_path) == found


def steps_in(dump: Path) -> dict[str, bool]:
    """Return the steps of a dump, and whether each has gradients."""
    found = recorded(dump)
    return {
        path.split("/")[0]: any(".backward" in name for name in document["data"])
        for path, document in found.items()
        if "dump.json" in path
    }
