"""The documented queries in DuckDB, the same questions in Polars, and the answers by hand from the dump's JSON."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import plain_dump
import polars as pl
import pytest
from blocks import blocks_of
from probe_analysis import export
from probe_analysis.cli.export import main

PAGE = Path(__file__).parents[2] / "packages" / "probe-analysis" / "docs" / "export.md"
STEPS, RANKS = 3, 2
Rows = list[tuple[Any, ...]]


def queries() -> dict[str, str]:
    """The queries of the page by their names, those alone that can run here."""
    return {b.mark: b.text for b in blocks_of(PAGE) if b.language == "sql" and b.mark != "no-run"}


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queries")
    plain_dump.write(folder / "dump", STEPS, RANKS)
    export(folder / "dump", folder / "tables", group=50)
    return folder / "dump"


@pytest.fixture(scope="module")
def sql(dump: Path) -> Iterator[Callable[[str], Rows]]:
    """A function that runs a query of the page, from the folder above ``tables``."""
    with duckdb.connect() as connection:
        connection.execute(queries()["setup"].replace("'tables/", f"'{dump.parent}/tables/"))
        yield lambda name: connection.execute(queries()[name]).fetchall()


@pytest.fixture(scope="module")
def frame(dump: Path) -> pl.LazyFrame:
    return pl.scan_parquet(dump.parent / "tables" / "tensors", hive_partitioning=True)


def truth(dump: Path) -> Iterator[tuple[int, int, str, str, dict[str, Any]]]:
    for (step, rank, record, slot), tensor in plain_dump.tensors_of(dump).items():
        yield step, rank, record, slot, tensor


def close(a: Rows, b: Rows) -> bool:
    """Whether two answers are the same; sums may be rounded in another order."""
    flat = [[x for row in rows for x in row] for rows in (a, b)]
    return len(a) == len(b) and all(
        x == pytest.approx(y, rel=1e-12, nan_ok=True) if isinstance(x, float) else x == y
        for x, y in zip(*flat, strict=True)
    )


def test_each_query_of_the_page_is_tested() -> None:
    here = Path(__file__).read_text()
    assert len(queries()) >= 7
    assert not [name for name in queries() if name != "setup" and f'sql("{name}")' not in here]


def test_runs(sql: Callable[[str], Rows], dump: Path) -> None:
    counted = {(s, r): 0 for s in range(STEPS) for r in range(RANKS)}
    for step, rank, *_ in truth(dump):
        counted[step, rank] += 1
    assert sql("runs") == [(s, r, "pytorch", "mix", 12, n, None) for (s, r), n in counted.items()]


def test_first_nan(sql: Callable[[str], Rows], dump: Path, frame: pl.LazyFrame) -> None:
    first: dict[tuple[int, int], tuple[Any, ...]] = {}
    for step, rank, record, slot, t in truth(dump):
        if not math.isfinite(t["Max"]):
            first.setdefault((step, rank), (step, rank, record, slot, t["nan_count"], t["neginf_count"]))
    assert list(first) == [(1, 0), (1, 1)]
    found = sql("first_nan")
    assert [(*row[:4], row[5], row[7]) for row in found] == list(first.values())
    assert {row[8] for row in found} == {"File /home/u/model.py, line 4, in forward, y = f(x4)"}
    columns = ["step", "rank", "record", "slot", "nan_count", "neginf_count"]
    polars = (
        frame.filter(~pl.col("finite"))
        .sort("call_order", "slot_order")
        .group_by("step", "rank", maintain_order=True)
        .first()
        .sort("step", "rank")
    )
    assert polars.select(columns).collect().rows() == list(first.values())


def test_gradients(sql: Callable[[str], Rows], dump: Path, frame: pl.LazyFrame) -> None:
    sums: dict[tuple[int, int, str], float] = {}
    for step, rank, record, _, t in truth(dump):
        if record.endswith(".parameters_grad"):
            key = step, rank, record.removeprefix("Module.").removesuffix(".MLP.parameters_grad")
            sums[key] = sums.get(key, 0.0) + t["Norm"] ** 2
    rows = [(*key, math.sqrt(total)) for key, total in sums.items()]
    rows.sort(key=lambda row: (row[0], -row[3], row[1], row[2]))
    assert close(sql("gradients"), rows)
    polars = (
        frame.filter((pl.col("role") == "gradient") & (pl.col("call_number") == 0))
        .group_by("step", "rank", "module")
        .agg(pl.col("norm").pow(2).sum().sqrt())
        .sort(["step", "norm", "rank", "module"], descending=[False, True, False, False])
    )
    assert close(polars.collect().rows(), rows)


def test_ranks(sql: Callable[[str], Rows], dump: Path, frame: pl.LazyFrame) -> None:
    norms: dict[tuple[int, str, str], set[float]] = {}
    for step, _, record, slot, t in truth(dump):
        if slot.startswith("parameters."):
            norms.setdefault((step, record, slot), set()).add(t["Norm"])
    rows = [(*key, min(found), max(found), RANKS) for key, found in norms.items() if len(found) > 1]
    assert {(row[1], row[2]) for row in rows} == {("Module.head.MLP.forward.0", "parameters.weight")}
    rows.sort(key=lambda row: (row[0], -(row[4] - row[3]) / row[4]))
    assert sql("ranks") == rows
    polars = (
        frame.filter((pl.col("role") == "parameter") & ~pl.col("recompute"))
        .group_by("step", "record", "slot")
        .agg(
            pl.col("norm").min().alias("least"),
            pl.col("norm").max().alias("most"),
            pl.col("rank").n_unique().alias("ranks"),
        )
        .filter(pl.col("least") < pl.col("most"))
        .sort("step")
    )
    assert polars.collect().rows() == rows


def test_trend(sql: Callable[[str], Rows], dump: Path, frame: pl.LazyFrame) -> None:
    norms = {
        (rank, record, slot, step): t["Norm"]
        for step, rank, record, slot, t in truth(dump)
        if slot == "output.0" and record.endswith(".forward.0")
    }
    rows = []
    for (rank, record, slot, step), norm in norms.items():
        before = norms.get((rank, record, slot, step - 1))
        rows.append((rank, record, slot, step, norm, None if before is None else norm / before))
    # To DuckDB a NaN is larger than any number; NULL comes last.
    rows.sort(key=lambda r: (math.inf if r[5] is None else -math.inf if r[5] != r[5] else -r[5], r[:4]))
    assert close(sql("trend"), rows[:20])
    polars = (
        frame.filter(
            (pl.col("role") == "output") & (pl.col("kind") == "module") & (pl.col("direction") == "forward")
        )
        .sort("step")
        .with_columns(
            (pl.col("norm") / pl.col("norm").shift().over("rank", "record", "slot")).alias("growth")
        )
        .select("rank", "record", "slot", "step", "norm", "growth")
        .sort("rank", "record", "slot", "step")
    )
    assert close(polars.collect().rows(), sorted(rows, key=lambda row: row[:4]))


def test_overflow(sql: Callable[[str], Rows], dump: Path) -> None:
    rows = [
        (step, rank, record, slot, max(abs(t["Max"]), abs(t["Min"])))
        for step, rank, record, slot, t in truth(dump)
        if t["dtype"] == "torch.float16" and slot.startswith("output") and t["Max"] > 65504 / 8
    ]
    assert len(rows) == STEPS * RANKS * 2
    assert sql("overflow") == sorted(rows, key=lambda row: (-row[4], row[0], row[1]))


def test_arguments(sql: Callable[[str], Rows]) -> None:
    assert sql("arguments") == [
        ("layer_norm", "input_args.4", "0.00001", 12),
        ("layer_norm", "input_args.4", "1e-6", 6),
    ]


def test_integers_of_any_size_are_exact_as_text(sql: Callable[[str], Rows], dump: Path) -> None:
    path = dump.parent / "tables" / "arguments" / "**" / "*.parquet"
    found = duckdb.sql(f"SELECT DISTINCT value, number FROM '{path}' WHERE path = '1.a.0'").fetchall()
    assert found == [(str(2**70), None)]
    assert duckdb.sql(f"SELECT DISTINCT number FROM '{path}' WHERE path = 'scale'").fetchall() == [
        (math.inf,)
    ]


def test_a_step_that_is_null_everywhere(tmp_path: Path) -> None:
    data = plain_dump.records(plain_dump.random.Random(0), 0, 0)
    export(plain_dump.put(tmp_path / "loose" / "rank", data), tmp_path / "out")
    count = sum(
        1 for value in data.values() for _, node in plain_dump.below(value) if plain_dump.is_tensor(node)
    )
    query = f"SELECT count(*), count(step), count(rank) FROM '{tmp_path}/out/tensors/**/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(count, 0, count)]
    frame = pl.read_parquet(tmp_path / "out" / "tensors", hive_partitioning=True)
    assert (frame.height, frame["step"].null_count()) == (count, count)


def test_a_filter_on_the_step_opens_only_its_files(dump: Path) -> None:
    path = dump.parent / "tables" / "tensors" / "**" / "*.parquet"
    ((_, plan),) = duckdb.sql(
        f"EXPLAIN ANALYZE SELECT count(*), max(norm) FROM '{path}' WHERE step = 1"
    ).fetchall()
    assert (
        re.search(rf"Scanning Files:\s+{RANKS}/{STEPS * RANKS}", plan) or f"Total Files Read: {RANKS}" in plan
    )


@pytest.mark.parametrize("name", ["t", "a b", "it's", "[x] *", 'a "b" $HOME `c`', "数据"])
def test_the_query_that_the_command_prints_runs_as_it_is(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_dump.write(tmp_path / "dump", 2, 1)
    assert main([str(tmp_path / "dump"), "-o", str(tmp_path / name)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.strip().startswith("duckdb -c ")
    shell = line.strip().replace("duckdb -c", "printf %s", 1)
    query = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    found = duckdb.sql(query).fetchall()
    assert (
        len(found) == 2
    )  # the results of the last layer in step 1: of its module and of the function inside
