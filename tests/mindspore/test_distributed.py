"""Two real processes under msrun: a directory for each rank, and the same bits as unwatched."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dumping import agrees, records, report, write_config

HERE = Path(__file__).parent
MSRUN = Path(sys.executable).with_name("msrun")

pytestmark = pytest.mark.skipif(not MSRUN.exists(), reason="this MindSpore has no msrun")


def launch(config: str, out: Path) -> list[list[np.ndarray]]:
    """What each of the two ranks saw."""
    out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    path = os.pathsep.join([*(p for p in sys.path if p), str(HERE)])
    command = [
        str(MSRUN), "--worker_num=2", "--local_worker_num=2", f"--master_port={port}",
        f"--log_dir={out / 'log'}", "--join=True", str(HERE / "ranks.py"), config, str(out),
    ]  # fmt: skip
    # msrun of 2.7 starts whatever is called python.
    first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": first, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, cwd=out)
    logs = "".join(p.read_text(errors="replace")[-2000:] for p in sorted((out / "log").glob("worker_*.log")))
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-1000:]}{logs}"
    shutil.rmtree(out / "log", ignore_errors=True)
    found = []
    for rank in (0, 1):
        with np.load(out / f"{rank}.npz") as file:
            found.append([file[name] for name in file.files])
    return found


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> list[list[np.ndarray]]:
    return launch("-", tmp_path_factory.mktemp("unwatched"))


def test_each_rank_has_its_directory_and_the_bits_are_the_same(
    truth: list[list[np.ndarray]], tmp_path: Path
) -> None:
    seen = launch(str(write_config(tmp_path, level="mix")), tmp_path / "out")
    for ours, theirs in zip(seen, truth, strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))
    for step in (0, 1):
        assert sorted(p.name for p in (tmp_path / "dump" / f"step{step}").iterdir()) == ["rank0", "rank1"]
    data = [records(tmp_path / "dump", 0, rank) for rank in (0, 1)]
    assert list(data[0]) == list(data[1])
    name = "MintDistributed.all_reduce.0.forward"
    before = [d[name]["input_args"][0]["Max"] for d in data]
    after = [d[name]["output"][0]["Max"] for d in data]
    assert before[0] != before[1] and after[0] == after[1] == pytest.approx(sum(before))
    assert agrees(data[0][name]["output"][0], truth[0][0])
    assert report(tmp_path / "dump", 0, 1)["header"]["rank"] == 1


def test_one_rank_alone(tmp_path: Path) -> None:
    launch(str(write_config(tmp_path, level="L0", rank=[1], step=[1])), tmp_path / "out")
    assert [p.relative_to(tmp_path).parts for p in (tmp_path / "dump").rglob("dump.json")] == [
        ("dump", "step1", "rank1", "dump.json")
    ]
