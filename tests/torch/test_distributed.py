"""Two real processes over gloo: DDP and FSDP2, a directory for each rank, and the same bits as unwatched."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from dumping import leaves, load, rank_dir, records, report, write_config
from torch import Tensor

HERE = Path(__file__).parent


def launch(kind: str, config: str, out: Path) -> list[dict[str, Any]]:
    """What each of the two ranks saw."""
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([*(p for p in sys.path if p), str(HERE)])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(HERE / "ranks.py"), kind, config, str(out)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


@cache
def unwatched(kind: str) -> list[dict[str, Any]]:
    return launch(kind, "-", Path(mkdtemp()))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_both_ranks_at_mix(kind: str, task: str, tmp_path: Path) -> None:
    watched = launch(kind, str(write_config(tmp_path, task=task)), tmp_path / "out")
    for rank in (0, 1):
        assert same(unwatched(kind)[rank], watched[rank])
        assert watched[rank]["0.collectives"]["waited"] is True
    dump = tmp_path / "dump"
    assert sorted(p.name for p in (dump / "step1").iterdir()) == ["rank0", "rank1"]
    for rank in (0, 1):
        for step in (0, 1):
            data = records(dump, step, rank)
            said = report(dump, step, rank)
            assert not said["faults"] and said["state"] == "complete"
            assert {"Distributed.all_reduce.0.forward", "Distributed.all_gather.0.forward"} <= data.keys()
            for way in ("forward", "backward"):
                for layer in ("a", "b"):
                    assert [
                        n for n in data if n.startswith("Module.") and f".{layer}." in n and f".{way}." in n
                    ]
    one, two = records(dump, 0, 0), records(dump, 0, 1)
    assert one.keys() == two.keys()
    reduced = [data["Distributed.all_reduce.0.forward"] for data in (one, two)]
    # The output of a collective is what it holds once it is complete.
    assert [next(leaves(r["output"]))["Max"] for r in reduced] == [3.0, 3.0]
    assert [next(leaves(r["input_args"]))["Max"] for r in reduced] == [1.0, 2.0]
    losses = [one, two]
    assert losses[0] != losses[1]
    if task == "tensor":
        for rank, data in enumerate((one, two)):
            named = [leaf for leaf in leaves(data) if leaf.get("data_name")]
            assert named
            for leaf in named:
                assert list(load(dump, leaf, 0, rank).shape) == leaf["shape"]


def test_names_under_ddp_and_parameter_gradients(tmp_path: Path) -> None:
    watched = launch("ddp", str(write_config(tmp_path, level="L0", task="tensor")), tmp_path / "out")
    for rank in (0, 1):
        data = records(tmp_path / "dump", 0, rank)
        assert "Module.module.a.Linear.forward.0" in data
        (grad,) = data["Module.module.a.Linear.parameters_grad"]["weight"]
        assert grad["shape"] == [16, 8]
        value = load(tmp_path / "dump", grad, 0, rank)
        # The gradient as it arrives is this rank's own; the averaged one is in .grad afterwards.
        assert not torch.equal(value, watched[rank]["0.grad.module.a.weight"]) or rank == 0
    means = [
        load(
            tmp_path / "dump",
            records(tmp_path / "dump", 0, r)["Module.module.a.Linear.parameters_grad"]["weight"][0],
            0,
            r,
        )
        for r in (0, 1)
    ]
    truth = watched[0]["0.grad.module.a.weight"]
    assert torch.allclose((means[0] + means[1]) / 2, truth, rtol=1e-5, atol=1e-7) or all(
        torch.equal(m, truth) for m in means
    )


def test_dtensors_are_described(tmp_path: Path) -> None:
    launch("fsdp", str(write_config(tmp_path, level="mix")), tmp_path / "out")
    found = [
        leaf for r in (0, 1) for leaf in leaves(records(tmp_path / "dump", 0, r)) if "DTensor" in leaf["type"]
    ]
    for leaf in found:
        assert leaf["device_mesh"] == [0, 1] and leaf["placements"] == [{"Shard": {"dim": 0}}]


def test_only_the_ranks_that_were_asked_for(tmp_path: Path) -> None:
    watched = launch("ddp", str(write_config(tmp_path, rank=[1])), tmp_path / "out")
    assert [same(unwatched("ddp")[rank], watched[rank]) for rank in (0, 1)] == [True, True]
    assert [p.name for p in (tmp_path / "dump" / "step0").iterdir()] == ["rank1"]
    assert (rank_dir(tmp_path / "dump", 0, 1) / "dump.json").exists()
