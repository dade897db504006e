"""Two real processes with msrun: a directory for each rank, and the same bits as unwatched."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import mindspore_zoo as zoo
import numpy as np
import pytest
from mindspore_dumping import leaves, load, rank_dir, records, validate, write_config

pytestmark = [pytest.mark.once, pytest.mark.slow]

HERE = Path(__file__).parent


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def launch(config: str, out: Path, when: str, by: Sequence[str] = ()) -> list[zoo.Trace]:
    """What each of the two ranks saw. by: the words of a command that starts the script."""
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([*(p for p in sys.path if p), str(HERE)])
    command = [
        sys.executable, "-m", "mindspore.parallel.cluster.run", "--worker_num=2", "--local_worker_num=2",
        f"--master_port={_free_port()}", f"--log_dir={out / 'log'}", "--join=True",
        *by, str(HERE / "mindspore_ranks.py"), config, str(out), when,
    ]  # fmt: skip
    # msrun of 2.7 starts whatever is called python.
    first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=out,
        env={**os.environ, "PATH": first, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOG_v": "3"},
    )  # fmt: skip
    logs = "".join(p.read_text(errors="replace")[-2000:] for p in sorted((out / "log").glob("worker*")))
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}{logs}"
    assert (out / "1.npz").exists(), logs
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
