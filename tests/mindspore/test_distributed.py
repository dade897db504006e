"""Two real processes: a directory for each rank, and the same bits as unwatched."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import mindspore_zoo as zoo
import numpy as np
import pytest
from mindspore_dumping import leaves, load, rank_dir, records, validate, write_config
from mindspore_launching import run_ranks

pytestmark = [pytest.mark.once, pytest.mark.slow]


def launch(config: str, out: Path, when: str) -> list[zoo.Trace]:
    """What each of the two ranks saw."""
    out.mkdir(parents=True, exist_ok=True)
    run_ranks("mindspore_ranks.py", config, str(out), when)
    return [dict(np.load(out / f"{rank}.npz")) for rank in (0, 1)]


@cache
def unwatched() -> list[zoo.Trace]:
    return launch("-", Path(mkdtemp()), "after")


@cache
def watched() -> tuple[Path, list[zoo.Trace]]:
    folder = Path(mkdtemp())
    return folder / "dump", launch(str(write_config(folder, task="tensor")), folder / "out", "after")


def test_the_same_bits_as_unwatched() -> None:
    for rank, (one, other) in enumerate(zip(unwatched(), watched()[1], strict=True)):
        assert not zoo.differences(one, other), f"rank {rank}"
        assert other["0.total"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_has_its_own_directory(rank: int) -> None:
    dump, traces = watched()
    for step in (0, 1):
        validate(rank_dir(dump, step, rank))
    data = records(dump, 0, rank)
    assert "Cell.a.Dense.backward.0" in data and "Cell.b.Dense.parameters_grad" in data
    loss = [load(dump, leaf, 0, rank) for leaf in leaves(data["Tensor.mean.0.forward"]["output"])]
    np.testing.assert_array_equal(loss[0], traces[rank]["0.loss"])
    assert not (dump / "step0" / "rank").exists()


def test_a_collective_shows_what_it_received() -> None:
    dump, _ = watched()
    for rank in (0, 1):
        record = records(dump, 0, rank)["MintDistributed.all_reduce.0.forward"]
        into, out = next(leaves(record["input_args"])), next(leaves(record["output"]))
        assert (into["Max"], out["Max"]) == (rank + 1.0, 3.0)


def test_only_the_ranks_asked_for_and_a_debugger_made_early(tmp_path: Path) -> None:
    launch(str(write_config(tmp_path, level="L1", rank=[1])), tmp_path / "out", "before")
    assert [p.name for p in (tmp_path / "dump" / "step0").iterdir()] == ["rank1"]
    assert records(tmp_path / "dump", 0, 1)
