"""Two real processes, one of them late: what a collective has not finished is not read, and nobody waits for us."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
import zoo
from dumping import agrees, leaves, load, rank_dir, records, report, write_config
from launching import launch
from probe_format.read.verify import verify
from torch import Tensor


@cache
def unwatched(kind: str) -> list[dict[str, Any]]:
    return launch("parallel.py", kind, "-", Path(mkdtemp()))


@cache
def watched(kind: str, level: str = "mix", **keys: Any) -> tuple[Path, list[dict[str, Any]]]:
    """One run with tensor files: (dump, what the ranks saw)."""
    folder = Path(mkdtemp())
    config = write_config(folder, **{"task": "tensor", "level": level, **keys})
    return folder / "dump", launch("parallel.py", kind, str(config), folder / "out")


pytestmark = pytest.mark.slow
#: Each costs two processes, and all tests look at the dumps of these runs.
RUNS = [
    ("asynchronous", "L0"),
    ("asynchronous", "mix"),
    ("parallel", "L1"),
    ("parallel", "mix"),
    ("redistributed", "mix"),
]


@pytest.mark.parametrize(("kind", "level"), RUNS)
def test_the_bits_are_those_of_the_unwatched_run(kind: str, level: str) -> None:
    _, traces = watched(kind, level)
    for truth, trace in zip(unwatched(kind), traces, strict=True):
        told, seen = ({k: v for k, v in t.items() if isinstance(v, Tensor)} for t in (truth, trace))
        assert told and not zoo.differences(told, seen)
        assert trace["fake warnings"] == []


@pytest.mark.parametrize(("kind", "level"), RUNS)
def test_every_file_is_whole_and_has_its_numbers(kind: str, level: str) -> None:
    dump, _ = watched(kind, level)
    for step in (0, 1):
        for rank in (0, 1):
            said = report(dump, step, rank)
            assert not said["faults"] and said["state"] == "complete"
            for leaf in leaves(records(dump, step, rank)):
                assert "$" not in leaf and "$f" not in leaf
                if leaf.get("data_name"):
                    assert agrees(leaf, load(dump, leaf, step, rank)), leaf
            (found,) = verify(rank_dir(dump, step, rank))
            assert found.state == "complete", found


@pytest.mark.parametrize(("level", "keys"), [("L0", {}), ("mix", {}), ("mix", {"async_dump": True})], ids=str)
def test_a_functional_collective_is_recorded_when_it_is_complete(level: str, keys: dict[str, Any]) -> None:
    dump, _ = watched("asynchronous", level, **keys)
    for rank in (0, 1):
        data = records(dump, 0, rank)
        used, gathered = (data[f"Module.m.Tanh.forward.{i}"]["input_args"][0] for i in (0, 1))
        assert used["Max"] == used["Min"] == 3.0 and used["Norm"] == 3 * 1024**0.5
        assert torch.equal(load(dump, used, 0, rank), torch.full((1024,), 3.0))
        assert (gathered["Max"], gathered["Min"], gathered["shape"]) == (2.0, 1.0, [2048])
        viewed, raw, racing, done = (
            data[f"Module.same.Identity.forward.{i}"]["input_args"][0] for i in range(4)
        )
        assert (viewed["Max"], viewed["Mean"], viewed["shape"]) == (2.0, 1.5, [2, 1024])
        assert (raw["Max"], raw["Min"]) == (9.0, 9.0)
        assert done["Max"] == done["Min"] == 12.0
        # In flight while the module had it: that is said, or the collective was faster.
        assert racing["Max"] in (None, 12.0)
        assert racing["Max"] is not None or "collective" in racing["unsupported"]


def test_what_nobody_waited_for_is_said() -> None:
    dump, traces = watched("asynchronous", "L0")
    for rank in (0, 1):
        for step in (0, 1):
            (never,) = records(dump, step, rank)["Module.unused.Identity.forward.0"]["input_args"]
            assert never["Max"] is None and "collective" in never["unsupported"]
            assert "data_name" not in never
            assert any("collective" in why for why in report(dump, step, rank)["counts"]["unsupported"])
        assert torch.equal(traces[rank]["kept"], torch.full((1024,), 6.0))


def test_every_number_of_tensor_parallelism() -> None:
    dump, _ = watched("parallel", "mix")
    for rank, truth in enumerate(unwatched("parallel")):
        for step in (0, 1):
            data = records(dump, step, rank)
            checked = 0
            for name, record in data.items():
                if name.startswith("Module.") and ".forward." in name:
                    path = name.removeprefix("Module.").rpartition(".forward.")[0].rpartition(".")[0]
                    for key, slot in (("in", "input_args"), ("out", "output")):
                        leaf, right = record[slot][0], truth[f"{step}.hooks"][f"{path}.{key}"]
                        if leaf["shape"] == list(right.shape):
                            assert agrees(leaf, right, 1e-5), (name, slot)
                            checked += 1
                elif name.startswith("Module.") and name.endswith("parameters_grad"):
                    path = name.removeprefix("Module.").removesuffix(".parameters_grad").rpartition(".")[0]
                    for own, (leaf,) in record.items():
                        assert agrees(leaf, truth[f"{step}.grad.{path}.{own}"], 1e-5), (name, own)
                        checked += 1
            assert checked >= 20
            assert not [name for name in data if "Tensor.stride" in name or "view_as" in name]
            missing = [leaf for leaf in leaves(data) if leaf.get("unsupported")]
            assert not missing, missing[:3]


def test_the_steps_have_the_same_calls() -> None:
    """Shapes are worked out in the first step and remembered: that is none of the user's calls."""
    for level in ("L1", "mix"):
        dump, _ = watched("parallel", level)
        for rank in (0, 1):
            assert records(dump, 0, rank).keys() == records(dump, 1, rank).keys()


def test_redistributions() -> None:
    dump, _ = watched("redistributed", "mix")
    for rank in (0, 1):
        whole, part = (records(dump, 0, rank)[f"Module.m.Tanh.forward.{i}"]["input_args"][0] for i in (0, 1))
        assert (whole["Max"], whole["Min"], whole["shape"]) == (15.0, 0.0, [4, 4])
        assert part["shape"] == [2] and part["Max"] == rank + 1
