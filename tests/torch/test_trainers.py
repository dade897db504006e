"""`probe run` with trainers whose loop is a library's: the bits of a run without it, the records of one by hand."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trainers
from forks import Forks
from probe_torch import PrecisionDebugger
from recorded import recorded
from torch import nn

pytestmark = pytest.mark.slow
SCRIPT = trainers.__file__
KEYS = ["--level", "mix", "--task", "statistics", "--step", "[1, 2]"]  # a later --step wins
IMPORTED = ["transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning", "accelerate"]
#: training -> (keys that it needs, steps that are dumped)
ALL: dict[str, tuple[list[str], list[int]]] = {
    "transformers": ([], [1, 2]),
    "resumed": (["--first_step", "auto"], [2]),
    "lightning": (["--step", "[1, 2, 4]"], [1, 2]),  # the last validation is where a fifth step is awaited
    "lightning_turns": (["--step_ends", "all"], [1, 2]),
    "lightning_resumed": (["--first_step", "auto"], [2]),
    "accelerate": ([], [1, 2]),
}


class Runs:
    """Runs trainings, all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._forks = folder, Forks("warmed", *IMPORTED)
        for training in ("transformers", "lightning_checkpoints"):
            self(SCRIPT, training)  # leaves checkpoints

    def __call__(self, *words: str) -> tuple[str, str]:
        """Return what a command that ended well said on stdout and stderr."""
        done = self._forks.run(*words, cwd=self.folder, CUDA_VISIBLE_DEVICES="")
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("training", ALL)
def test_a_trainer_is_recorded_as_by_hand(runs: Runs, training: str) -> None:
    keys, steps = ALL[training]
    plain, _ = runs(SCRIPT, training)
    by_hand, dump = (str(runs.folder / f"{training}-{who}") for who in ("hand", "auto"))
    assert runs(SCRIPT, training, "hand", by_hand)[0] == plain
    printed, said = runs("-m", "probe_format", "run", *KEYS, "--dump_path", dump, *keys, SCRIPT, training)
    assert printed == plain
    lines = [line for line in said.splitlines() if line.startswith("Probe: ")]
    assert [line[:23] for line in lines] == ["Probe: found the model "]
    found = recorded(Path(dump))
    assert [path for path in found if "dump.json" in path] == [f"step{n}/rank/dump.json" for n in steps]
    assert found == recorded(Path(by_hand))


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
    by_hand, dump = (runs.folder / f"{callback}-{who}" for who in ("own", "probes"))
    plain, _ = runs(SCRIPT, training, "hand", str(by_hand), json.dumps(steps))
    printed, said = runs(SCRIPT, callback, "hand", str(dump), json.dumps(steps))
    assert (printed, "Probe" in said) == (plain, False), said
    found = [calls(folder) for folder in (dump, by_hand)]
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
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert f"pip install {library}" in done.stderr.splitlines()[-1]


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("training", "steps", "launcher"),
    [
        ("no_sync", "[1, 2]", [*TORCHRUN, "--no-python", sys.executable]),
        ("lightning_ddp", "[0, 1]", [sys.executable]),
    ],
)
def test_two_processes_are_recorded_as_by_hand(
    tmp_path: Path, training: str, steps: str, launcher: list[str]
) -> None:
    """With its bits, which test_distributed.py holds against those of a run without Probe."""
    by_hand = processes([*launcher, SCRIPT, training, "hand", "hand", steps], tmp_path)
    run = ["-m", "probe_format", "run", *KEYS, "--step", steps, "--dump_path", "dump"]
    assert processes([*launcher, *run, SCRIPT, training], tmp_path) == by_hand
    found = recorded(tmp_path / "dump")
    numbers = json.loads(steps)
    assert {os.path.dirname(path) for path in found} == {
        f"step{n}/rank{rank}" for n in numbers for rank in (0, 1)
    }
    assert found == recorded(tmp_path / "hand")


def processes(command: list[str], folder: Path) -> list[str]:
    """Return the lines that the processes of a training printed, in the order of the alphabet."""
    settings = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, **settings}
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.filterwarnings("error:Probe")
def test_a_training_that_broke_off_leaves_the_callbacks_usable(tmp_path: Path) -> None:
    """A step is open when an error or Ctrl-C ends a training; the next one begins with one of its own."""
    from lightning.pytorch import LightningModule, Trainer
    from probe_torch.callbacks.lightning import ProbeCallback as OfLightning
    from probe_torch.callbacks.transformers import ProbeCallback as OfTransformers

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.fails = nn.Linear(8, 4), True

        def training_step(self, batch: Any, i: int) -> Any:
            loss = self.net(batch[0]).square().mean()
            if self.fails:
                raise KeyError("mine")
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net.parameters(), 0.1)

    with PrecisionDebugger(dump_path=str(tmp_path / "lightning"), level="L0") as debugger:
        module, callback = Module(), OfLightning(debugger)
        quiet: dict[str, Any] = dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar"), False
        )
        for module.fails in (True, False):
            trainer = Trainer(
                accelerator="cpu", max_steps=2, callbacks=[callback], enable_model_summary=False, **quiet
            )
            with pytest.raises(KeyError, match="mine") if module.fails else contextlib.nullcontext():
                trainer.fit(module, trainers.batches(8))
    assert steps_in(tmp_path / "lightning") == {"step0": False, "step1": True, "step2": True}

    state, model = SimpleNamespace(global_step=0), nn.Sequential(nn.Linear(2, 2))
    with PrecisionDebugger(dump_path=str(tmp_path / "transformers"), level="L0") as debugger:
        of_transformers = OfTransformers(debugger)
        for first, fails in ((0, True), (7, False)):
            state.global_step = first
            of_transformers.on_train_begin(None, state, None)
            of_transformers.on_step_begin(None, state, None, model=model)
            model(torch.ones(1, 2)).sum()
            if fails:
                continue
            model(torch.ones(1, 2)).sum().backward()
            of_transformers.on_optimizer_step(None, state, None)
            of_transformers.on_step_end(None, state, None)
    assert steps_in(tmp_path / "transformers") == {"step0": False, "step7": True}


def steps_in(dump: Path) -> dict[str, bool]:
    """Return the steps of a dump, and whether each has gradients."""
    found = recorded(dump)
    return {
        path.split("/")[0]: any(".backward" in name for name in document["data"])
        for path, document in found.items()
        if "dump.json" in path
    }
