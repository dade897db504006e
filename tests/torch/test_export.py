"""Key `export`: each step that has ended becomes tables behind the run, whatever happens to run and store."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pandas
import pytest
import torch
from contract_export import *  # noqa: F403
from contract_export import exported, followers, reports, steps, wait_for
from documents import strict, validate, write_config
from dumping import FRAMEWORK
from forks import Fork, free_port
from launching import FORKS, HERE
from moto.server import ThreadedMotoServer
from probe_analysis.export.columns import TABLES
from probe_format import open as open_dump
from probe_format.read.verify import verify

RANKS, STEPS = 4, 16
logging.getLogger("werkzeug").setLevel(logging.WARNING)


def tables(address: str, name: str) -> Any:
    """What DuckDB reads of a table, as pandas has it."""
    connection = duckdb.connect()
    if "://" in address:
        connection.register_filesystem(fsspec.filesystem("s3", skip_instance_cache=True))
    pattern = f"{address}/{name}/**/*.parquet"
    found = connection.sql(f"FROM read_parquet('{pattern}', hive_partitioning = true)").df()
    connection.close()
    return found


def read_while(address: str, what: Callable[[], bool], why: str) -> None:
    """Wait, and read all that there is meanwhile: what is not whole raises."""

    def is_over() -> bool:
        try:
            runs = tables(address, "runs")
            rows = {name: tables(address, name).groupby("run").size() for name in ("records", "tensors")}
        except duckdb.IOException as error:
            assert "No files found" in str(error), why
        else:
            for _, run in runs.iterrows():
                assert all(rows[name][run["run"]] == run[name] for name in rows), why
        return what()

    wait_for(is_over, why, pause=0.5)  # each time it reads all of it


def check(dump: Path, address: str) -> int:
    """Compare the tables with the reports, as DuckDB and as pandas read them. Return how many runs there are."""
    ended = dict(reports(dump))
    labels = {f"step{step}/{rank}" for step, rank in ended}
    runs = tables(address, "runs")
    assert set(runs["run"]) == labels and runs["error"].isna().all()
    for name in TABLES:
        found = tables(address, name)
        mine = pandas.read_parquet(f"{address}/{name}")
        assert len(mine) == len(found) and sorted(mine["run"]) == sorted(found["run"])
        assert set(mine["step"].astype(int)) <= {step for step, _ in ended}
        if name in ("tensors", "records"):
            assert len(mine) == sum(report[name] for report in ended.values())
    found = tables(address, "tensors").sort_values(["call_order", "slot_order"])
    for each in open_dump(dump).ranks:  # a number of each, by the dump
        if each.label in labels:
            maxima = [tensor.max for record in each.records for tensor in record.tensors]
            assert list(found[found["run"] == each.label]["max"]) == maxima
    return len(labels)


def started(out: Path, config: Path | None = None, steps: int = STEPS) -> list[Fork]:
    """Start the ranks of a job."""
    out.mkdir(parents=True)
    words = str(HERE / "exported.py"), str(config or "-"), str(out), str(steps)
    with open(os.devnull, "w+") as none:
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), none.fileno())
        job = {**ends, "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
        return [FORKS.start(*words, **job, RANK=str(rank)) for rank in range(RANKS)]


def finish(job: list[Fork]) -> None:
    for rank in job:
        rank.wait()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server of S3 on this machine, with a bucket; whoever asks the environment finds it."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        use_s3(patch, f"http://127.0.0.1:{port}")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
        yield "s3://bucket"
    server.stop()


def use_s3(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)


@pytest.mark.slow
def test_the_bits_and_the_dump_are_those_of_a_run_without(tmp_path: Path) -> None:
    steps = 3
    finish(started(tmp_path / "unwatched", steps=steps))
    config = write_config(tmp_path / "alone", level="mix")
    finish(started(tmp_path / "alone" / "out", config, steps))
    config = write_config(tmp_path / "both", level="mix", export="parquet")
    finish(started(tmp_path / "both" / "out", config, steps))
    dump = tmp_path / "both" / "dump"
    wait_for(lambda: exported(dump), "the tables are not there")
    assert check(dump, str(dump / "parquet")) == RANKS * steps
    for rank in range(RANKS):
        truth = torch.load(tmp_path / "unwatched" / f"{rank}.pt")
        trace = torch.load(tmp_path / "both" / "out" / f"{rank}.pt")
        assert truth.keys() == trace.keys() and not trace.pop("told")
        assert all(torch.equal(truth[key], trace[key]) for key in trace)
        for step in range(steps):
            folder = Path(f"step{step}") / f"rank{rank}"
            alone, both = (
                strict(tmp_path / each / "dump" / folder / "dump.json") for each in ("alone", "both")
            )
            assert both.pop("export") == str(dump / "parquet")
            both["dump_data_dir"] = alone["dump_data_dir"]
            assert alone == both
            validate(dump / folder)
    assert {verdict.state for verdict in verify(dump)} == {"complete"}


@pytest.mark.slow
def test_every_step_of_killed_ranks_is_there(s3: str, tmp_path: Path) -> None:
    """Kill a rank of four (twice, or PROBE_KILLS; 20 with PROBE_SOAK) at a random instant, and read meanwhile."""
    kills = 20 if os.environ.get("PROBE_SOAK") else int(os.environ.get("PROBE_KILLS", 2))
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    cut, i = 0, 0
    while i < kills or not cut:  # an instant between two steps cuts none
        assert i < kills + 8, "no step was cut in all of them"
        folder = tmp_path / str(i)
        cut += kill_one(folder, f"{s3}/run{i}" if i % 2 else str(folder / "tables"), chance, f"{i} of {seed}")
        i += 1


def kill_one(folder: Path, address: str, chance: random.Random, which: str) -> int:
    """Kill a rank of a job at a random instant, and check its tables. Return how many steps were cut."""
    dump, config = folder / "dump", write_config(folder, level="mix", export=address)
    job = started(folder / "out", config)
    victim, after, delay = chance.randrange(RANKS), chance.randint(0, 12), chance.random() * 0.1
    said = folder / "out" / f"{victim}.said"
    where = f"kill {which}: rank {victim} {delay:.3f} s after step {after}"
    read_while(address, lambda: said.exists() and len(said.read_text().splitlines()) > after, where)
    time.sleep(delay)
    job[victim].kill()
    finish(job)
    read_while(address, lambda: exported(dump), where)
    assert check(dump, address) >= RANKS * (after + 1) - (RANKS - 1), where
    return sum(each.source == "journal" for each in open_dump(dump).ranks)


def test_while_the_store_cannot_be_reached_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning, JSON that is whole, reports that say it; as soon as it is there, so are the tables."""
    port = free_port()
    use_s3(monkeypatch, f"http://127.0.0.1:{port}")
    dump, address = tmp_path / "dump", "s3://late/run"
    (told,) = steps(FRAMEWORK, dump, 4, export=address)
    assert "step0/rank cannot be written to s3://late/run" in told and "127.0.0.1" in told
    assert {verdict.state for verdict in verify(dump)} == {"complete"}
    server = ThreadedMotoServer(port=port, verbose=False)
    server.start()
    try:
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("late")
        wait_for(lambda: followers(dump) == 0, "it does not end")
        if not exported(dump):  # the machine was slow, and the writer gave up: the reports say why
            assert any("127.0.0.1" in each["export"]["why"] for _, each in reports(dump) if "export" in each)
            return
        assert check(dump, address) == 4
    finally:
        server.stop()
