"""Many threads, many processes: nothing is overwritten, nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import probe_save as ps
import pytest
from saving import data, document


def test_8_threads_200_saves_one_name(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path, task="tensor") as saver:

        def work(me: int) -> None:
            for i in range(200):
                saver.save(np.array([me, i]), "x", save_backward=False)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    found = data(tmp_path)
    assert len(found) == 1600
    assert set(found) == {f"x.{n}.debug" for n in range(1600)}
    folder = tmp_path / "step0" / "rank" / "dump_tensor_data"
    values = {tuple(np.load(folder / tensor["data_name"]).tolist()) for tensor in found.values()}
    assert values == {(me, i) for me in range(8) for i in range(200)}


def test_saves_during_step_belong_to_one_step_or_the_next(tmp_path: Path) -> None:
    done = threading.Event()
    with ps.Saver(dump_path=tmp_path) as saver:

        def work(me: int) -> None:
            for i in range(300):
                saver.save(i, f"thread{me}", save_backward=False)

        def steps() -> None:
            while not done.wait(0.003):
                saver.step()

        stepper = threading.Thread(target=steps)
        stepper.start()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        done.set()
        stepper.join()
    found = [
        (r.name.split(".")[0], r.json["value"])
        for rank in probe_format.open(tmp_path).ranks
        for r in rank.records
    ]
    assert sorted(found) == [(f"thread{me}", i) for me in range(3) for i in range(300)]


def in_child(dump: str | None, me: int) -> None:
    if dump is not None:
        ps.configure(dump_path=dump, task="tensor")
    for i in range(20):
        ps.save(np.array([me, i]), "x", save_backward=False)
    ps.step()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_write_beside_each_other(tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    ps.configure(dump_path=tmp_path, task="tensor")
    ps.save(np.array([-1, 0]), "x", save_backward=False)
    given = None if method == "fork" else str(tmp_path)
    children = [context.Process(target=in_child, args=(given, me)) for me in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    ps.save(np.array([-1, 1]), "x", save_backward=False)
    ps.step()
    names = {p.name for p in (tmp_path / "step0").iterdir()}
    assert names == {"rank", *(f"proc{child.pid}" for child in children)}
    assert list(data(tmp_path)) == ["x.0.debug", "x.1.debug"]
    values = []
    for rank in probe_format.open(tmp_path).ranks:
        document(rank.path)
        values += [tuple(r.tensors[0].load().tolist()) for r in rank.records]
    assert sorted(values) == sorted([(-1, 0), (-1, 1), *((me, i) for me in range(2) for i in range(20))])


def test_a_plain_fork_leaves_the_parents_journal_alone(tmp_path: Path) -> None:
    with ps.Saver(dump_path=tmp_path) as saver:
        saver.save("parent", "x")
        pid = os.fork()
        if pid == 0:
            saver.save("child", "x")
            saver.close()
            os._exit(0)
        os.waitpid(pid, 0)
        saver.save("parent", "x")
    assert [v["value"] for v in data(tmp_path).values() if v] == ["parent", "parent"]
    assert data(tmp_path, rank=f"proc{pid}")["x.0.debug"]["value"] == "child"
