"""`probe run` with trainers whose loop is a library's: the bits of a run without it, the records of one by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trainers
from loop_client import Server
from recorded import recorded

SCRIPT = trainers.__file__
KEYS = ["--level", "mix", "--task", "statistics", "--step", "[1, 2]"]  # a later --step wins
IMPORTED = ["transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning", "accelerate"]
#: training -> (keys that it needs, steps that are dumped)
ALL: dict[str, tuple[list[str], list[int]]] = {
    "transformers": ([], [1, 2]),
    "resumed": (["--first_step", "auto"], [2]),
    "lightning": (["--step", "[1, 2, 4]"], [1, 2]),  # the last validation is where a fifth step is awaited
    "lightning_turns": (["--step_ends", "all"], [1, 2]),
    "accelerate": ([], [1, 2]),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("runs"), *IMPORTED)
    assert server.run("first", SCRIPT, "transformers")[0] == 0  # leaves checkpoints
    yield server
    server.close()


@pytest.mark.parametrize("training", ALL)
def test_a_trainer_is_recorded_as_by_hand(server: Server, training: str) -> None:
    keys, steps = ALL[training]
    code, out, said = server.run(f"{training}-plain", SCRIPT, training)
    assert code == 0, said
    by_hand, dump = server.folder / f"{training}-hand", server.folder / f"{training}-auto"
    code, printed, said = server.run(f"{training}-by-hand", SCRIPT, training, "hand", str(by_hand))
    assert (code, printed) == (0, out), said
    code, printed, said = server.run(
        f"{training}-run", "run", *KEYS, "--dump_path", str(dump), *keys, SCRIPT, training
    )
    assert (code, printed) == (0, out), said
    lines = [line for line in said.splitlines() if line.startswith("Probe: ")]
    assert [line[:23] for line in lines] == ["Probe: found the model "]
    found = recorded(dump)
    assert [path for path in found if "dump.json" in path] == [f"step{n}/rank/dump.json" for n in steps]
    assert found == recorded(by_hand)


@pytest.mark.parametrize(
    ("training", "callback"),
    [
        ("transformers", "transformers_callback"),
        ("lightning", "lightning_callback"),
        ("lightning_turns", "lightning_callback_turns"),
    ],
)
def test_a_callback_records_as_by_hand(server: Server, training: str, callback: str) -> None:
    by_hand, dump = server.folder / f"{callback}-own", server.folder / f"{callback}-probes"
    code, out, said = server.run(f"{callback}-by-hand", SCRIPT, training, "hand", str(by_hand))
    assert code == 0, said
    assert server.run(f"{callback}-run", SCRIPT, callback, "hand", str(dump))[:2] == (0, out)
    found = [calls(folder) for folder in (dump, by_hand)]
    assert len(found[0]) == 2
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
        ("torchrun", "[1, 2]", [*TORCHRUN, "--no-python", sys.executable]),
        ("lightning_ddp", "[0, 1]", [sys.executable]),
    ],
)
def test_two_processes_are_recorded_as_by_hand(
    tmp_path: Path, training: str, steps: str, launcher: list[str]
) -> None:
    by_hand = processes([*launcher, SCRIPT, training, "hand", "hand", steps], tmp_path)
    expected = processes([*launcher, SCRIPT, training], tmp_path)
    run = ["-m", "probe_format", "run", *KEYS, "--step", steps, "--dump_path", "dump"]
    assert processes([*launcher, *run, SCRIPT, training], tmp_path) == by_hand == expected
    found = recorded(tmp_path / "dump")
    numbers = (1, 2) if training == "torchrun" else (0, 1)
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
