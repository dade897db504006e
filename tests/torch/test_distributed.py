"""Two real processes over gloo: DDP and FSDP2, a directory for each rank, and the same bits as unwatched."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from dumping import leaves, load, rank_dir, records, report, write_config
from launching import launch
from torch import Tensor

pytestmark = pytest.mark.slow


@cache
def unwatched(kind: str) -> list[dict[str, Any]]:
    return launch("ranks.py", kind, "-", Path(mkdtemp()))


@cache
def watched(kind: str) -> tuple[Path, list[dict[str, Any]]]:
    """One run at mix with tensor files, which most of the tests look at: (dump, what the ranks saw)."""
    folder = Path(mkdtemp())
    return folder / "dump", launch(
        "ranks.py", kind, str(write_config(folder, task="tensor", optimizer_grad=True)), folder / "out"
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "unused"])
def test_the_bits_are_those_of_the_unwatched_run(kind: str) -> None:
    _, traces = watched(kind)
    for truth, trace in zip(unwatched(kind), traces, strict=True):
        assert same(truth, trace)
        assert trace["0.collectives"]["waited"] is True


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_directory_for_each_rank(kind: str) -> None:
    dump, _ = watched(kind)
    for step in (0, 1):
        assert sorted(p.name for p in (dump / f"step{step}").iterdir()) == ["rank0", "rank1"]
        for rank in (0, 1):
            data = records(dump, step, rank)
            said = report(dump, step, rank)
            assert not said["faults"] and said["state"] == "complete"
            for way in ("forward", "backward"):
                for layer in ("a", "b"):
                    assert [
                        n for n in data if n.startswith("Module.") and f".{layer}." in n and f".{way}." in n
                    ]
            named = [leaf for leaf in leaves(data) if leaf.get("data_name")]
            assert len(named) > 20
            for leaf in named:
                assert list(load(dump, leaf, step, rank).shape) == leaf["shape"]
    assert records(dump, 0, 0).keys() == records(dump, 0, 1).keys()
    assert records(dump, 0, 0) != records(dump, 0, 1), "each rank has its own data"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_collectives_are_recorded_when_they_are_complete(kind: str) -> None:
    dump, _ = watched(kind)
    ranks = [records(dump, 0, rank) for rank in (0, 1)]
    # The one of ranks.py is the last: DDP and FSDP have some of their own.
    last = [name for name in ranks[0] if name.startswith("Distributed.all_reduce.") and "forward" in name][-1]
    assert [next(leaves(data[last]["input_args"]))["Max"] for data in ranks] == [1.0, 2.0]
    assert [next(leaves(data[last]["output"]))["Max"] for data in ranks] == [3.0, 3.0]
    gathered = [name for name in ranks[0] if name.startswith("Distributed.all_gather.")]
    parts = [[leaf["Max"] for leaf in leaves(data[gathered[-1]]["output"])] for data in ranks]
    assert [part[:2] for part in parts] == [[0.0, 1.0], [0.0, 1.0]]
    assert not [name for name in ranks[0] if "object" in name and "Tensor." in name]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_what_an_exchange_receives_into_is_no_input(kind: str) -> None:
    """Nobody has written that memory: it may hold a NaN, at which `on_non_finite` would end the run."""
    dump, _ = watched(kind)
    for rank in (0, 1):
        (record,) = (r for name, r in records(dump, 0, rank).items() if "batch_isend_irecv" in name)
        (given,), (got,) = record["input_args"], record["output"]
        assert [op["op"] for op in given] == ["isend", "irecv"]
        assert given[0]["tensor"]["Max"] == rank and given[1]["tensor"] is None
        assert got[1]["tensor"]["Max"] == 1 - rank


def test_what_the_optimizer_gets_is_the_average() -> None:
    """Under DDP each rank's own gradient is beside what the step gets, which is the same on both ranks."""
    dump, traces = watched("ddp")
    for step in (0, 1):
        for layer in ("a", "b"):
            record, own, got = f"Module.module.{layer}.Linear", [], []
            for rank in (0, 1):
                data = records(dump, step, rank)
                (arrived,), (given,) = (
                    data[f"{record}.{k}_grad"]["weight"] for k in ("parameters", "optimizer")
                )
                own.append(load(dump, arrived, step, rank))
                got.append(load(dump, given, step, rank))
                assert torch.equal(got[rank], traces[rank][f"{step}.grad.module.{layer}.weight"])
            assert torch.equal(got[0], got[1])
            assert not torch.equal(own[0], own[1])
            assert torch.allclose((own[0] + own[1]) / 2, got[0], rtol=1e-5, atol=1e-7)


def test_what_the_optimizer_gets_of_fsdp_is_this_ranks_part() -> None:
    dump, traces = watched("fsdp")
    for rank in (0, 1):
        (given,) = records(dump, 1, rank)["Module.a.FSDPLinear.optimizer_grad"]["weight"]
        assert given["placements"] == [{"Shard": {"dim": 0}}]
        assert torch.equal(load(dump, given, 1, rank), traces[rank]["1.grad.a.weight"])


def test_a_gradient_that_another_wrote_is_marked() -> None:
    """DDP gives a rank that left a parameter out the average of the others."""
    dump, traces = watched("unused")
    record = "Module.module.c.Linear.parameters_grad"
    (used,), (left_out,) = (records(dump, 0, rank)[record]["weight"] for rank in (0, 1))
    assert "found_late" not in used and left_out["found_late"] is True
    assert torch.equal(load(dump, left_out, 0, 1), traces[1]["0.grad.module.c.weight"])
    arrived = [each for each in records(dump, 0, 1) if each.endswith("parameters_grad") and each != record]
    assert len(arrived) == 2
    assert not any("found_late" in leaf for each in arrived for leaf in leaves(records(dump, 0, 1)[each]))


def test_dtensors_are_described() -> None:
    dump, traces = watched("fsdp")
    found = [leaf for rank in (0, 1) for leaf in leaves(records(dump, 0, rank)) if "DTensor" in leaf["type"]]
    for leaf in found:
        assert leaf["device_mesh"] == [0, 1] and leaf["placements"] == [{"Shard": {"dim": 0}}]
    (grad,) = records(dump, 0, 1)["Module.a.FSDPLinear.parameters_grad"]["weight"]
    assert torch.equal(load(dump, grad, 0, 1), traces[1]["0.grad.a.weight"])


def test_only_the_ranks_that_were_asked_for(tmp_path: Path) -> None:
    traces = launch("ranks.py", "ddp", str(write_config(tmp_path, rank=[1])), tmp_path / "out")
    assert all(same(truth, trace) for truth, trace in zip(unwatched("ddp"), traces, strict=True))
    assert [p.name for p in (tmp_path / "dump" / "step0").iterdir()] == ["rank1"]
    assert (rank_dir(tmp_path / "dump", 0, 1) / "dump.json").exists()
