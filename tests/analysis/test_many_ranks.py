"""Many ranks: the same answer in blocks, in any order and grouping, in processes, on Dask, of JSON and of Parquet."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import lru_cache, reduce
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import plain_dump
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import probe_analysis
from probe_analysis import Ranks, ranks, trend
from probe_analysis.calls import compact_run
from probe_analysis.calls.compact_run import Shared
from probe_analysis.calls.engine import in_processes, on_dask, shares
from probe_analysis.calls.run import runs_of
from probe_analysis.cli.ranks import main
from probe_analysis.ranks.held import bits_of
from probe_analysis.ranks.sheet import parts_in
from probe_analysis.ranks.summary import RankBlock, StepSummary, summarised
from probe_format.errors import FormatError, ProbeError
from pyarrow import parquet
from rank_dumps import changed, tensor, write
from test_plans import ASKED, broken

from bench.many_ranks.generate import GRIDS, Run, write_json, write_parquet

WRITERS: dict[str, Callable[[Run, Path], None]] = {"json": write_json, "parquet": write_parquet}
ODD = 21
#: Fault -> a part of the sentence.
FAULTS = {
    "": "agree: ranks 0, 1, 2, 3, 4, 5, 6, 7, ... (32 in all) agree on all",
    "weight": "has other weights on some replicas: parameters.weight on rank 21 against ranks 17, 25, 29",
    "unreduced": "in the optimizer's step gets other numbers on some replicas: input_args.1",
    "stopped": "agree",
    "behind": "agree",
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("many")

    def dump(form: str, fault: str, ranks: int = 32, odd: int = ODD) -> Path:
        place = folder / f"{form}-{fault}-{ranks}"
        if not place.exists():
            WRITERS[form](Run(ranks, layers=1, fault=fault, odd=odd), place)
        return place

    return dump


def said(found: Ranks) -> dict[str, Any]:
    return found.document("ranks") | {"checked": dict(found.checked)}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_and_its_group_are_named(fault: str, dumps: Callable[..., Path]) -> None:
    found = {form: ranks(dumps(form, fault)) for form in WRITERS}
    one = found["json"]
    assert FAULTS[fault] in one.sentence
    assert one.state == ("disagree" if fault in ("weight", "unreduced") else "agree")
    assert (one.stopped is not None) == (fault in ("stopped", "behind"))
    if one.stopped is not None:
        assert one.stopped.ranks == (ODD,)
    if fault == "weight":
        assert one.first is not None and one.first.odd == (ODD,)
    if fault == "unreduced":
        assert one.first is not None and [rank for (rank,) in one.first.parting] == [17, 21, 25, 29]
        assert (
            "nothing was reduced" in one.sentence and "gate.Linear.parameters_grad.weight.0" in one.sentence
        )
    two = said(found["parquet"])
    assert two == said(one)


@pytest.fixture(scope="module")
def larger(dumps: Callable[..., Path]) -> Path:
    """A dump that takes some seconds to read, in two processes."""
    return dumps("json", "weight", 128, 77)


@pytest.fixture(scope="module")
def alone(larger: Path) -> Ranks:
    """What this process says of it."""
    return ranks(larger)


def test_one_rank_of_many_is_named(alone: Ranks) -> None:
    assert alone.first is not None and alone.first.odd == (77,)
    assert "on rank 77 against ranks 65, 69, 73, 81, 85, 89," in alone.sentence


def summaries(dump: Path, size: int = 8) -> list[StepSummary]:
    runs = [*runs_of(dump, step=0)]
    there = bits_of(run.rank.number or 0 for run in runs)
    some = [runs[i : i + size] for i in range(0, len(runs), size)]
    return [summarised(RankBlock("step0", each, there, (), 0.0)) for each in some]


@lru_cache(maxsize=8)
def packed(dump: Path) -> tuple[bytes, ...]:
    return tuple(pickle.dumps(each) for each in summaries(dump, 4))


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["weight", "unreduced", "stopped"]))
def test_any_order_and_grouping_gives_the_same(
    dumps: Callable[..., Path], draw: random.Random, fault: str
) -> None:
    dump = dumps("json", fault)
    parts: list[StepSummary] = [*map(pickle.loads, packed(dump))]
    draw.shuffle(parts)
    while len(parts) > 1:
        at = draw.randrange(len(parts) - 1)
        one, two = parts.pop(at), parts.pop(at)
        parts.insert(draw.randrange(len(parts) + 1), pickle.loads(pickle.dumps(two.with_(one))))
    assert answer(dump, parts[0]) == in_order(dump)


@lru_cache(maxsize=8)
def in_order(dump: Path) -> dict[str, Any]:
    return answer(dump, reduce(StepSummary.with_, map(pickle.loads, packed(dump))))


def answer(dump: Path, summary: StepSummary) -> dict[str, Any]:
    """What `ranks` says where an engine gives this summary."""
    return said(ranks(dump, step=0, engine=lambda work, parts, unite, done=None: summary))  # type: ignore[arg-type, return-value]


@pytest.mark.slow
def test_what_is_kept_does_not_grow_with_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 times as many replicas in the same number of stages and cuts, but for the bits that name them."""
    sizes = []
    for replicas in (8, 32):
        count = 4 * replicas
        monkeypatch.setitem(GRIDS, count, (2, 2, replicas))
        write_parquet(Run(count, layers=1), tmp_path / str(count))
        parts = summaries(tmp_path / str(count), 16)
        sizes.append(len(pickle.dumps(reduce(StepSummary.with_, parts))))
    assert sizes[1] < 1.3 * sizes[0], sizes


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 511), (7, 513), (64, 1100), (130, 5)])
def test_parts_are_the_rows_with_the_same_code(rows: int, columns: int) -> None:
    draw = np.random.default_rng(rows)
    codes = draw.integers(0, 2**64, 5, "uint64") | np.uint64(1)
    some = np.append(codes, np.uint64(0))[draw.integers(0, 6, (rows, columns))]
    some[:, 0] = draw.integers(0, 2**64, rows, "uint64") | np.uint64(1)  # one each
    found = parts_in(some)
    for column, parts in zip(some.T.tolist(), found, strict=True):
        first = {code: column.index(code) for code in reversed(column) if code}
        expected = {code: sum(1 << n for n, each in enumerate(column) if each == code) for code in first}
        assert parts == [expected[code] for code in sorted(first, key=lambda each: first[each])]


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 10**12])
def test_each_part_is_in_one_share_and_the_last_ones_are_small(workers: int) -> None:
    for count in range(200):
        found = [*shares(range(count), workers)]
        assert [each for share in found for each in share] == [*range(count)]
        assert all(found) and len(found) >= min(count, workers)
        assert max(map(len, found), default=0) <= 8 and len(found[-1] if found else ()) <= 2


@pytest.mark.parametrize("form", WRITERS)
def test_patterns_are_made_once_for_all_blocks(
    form: str, dumps: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form of a record is taken from its JSON by the first block alone, and by each where too much is kept."""
    made: list[Any] = []
    whole = Shared.taken_apart
    monkeypatch.setattr(Shared, "taken_apart", lambda shared, x: made.append(x) or whole(shared, x))
    counts = []
    for most in (1, compact_run.MOST):
        monkeypatch.setattr(compact_run, "MOST", most)
        for _ in range(2):
            made.clear()
            summaries(dumps(form, ""), 16)
            counts.append(len(made))
    assert counts[0] == counts[1] and counts[2] >= counts[3] < counts[0] / 2, counts


def test_a_set_of_ranks_is_there_once(dumps: Callable[..., Path]) -> None:
    """However many tensors these ranks hold alike."""
    found = reduce(StepSummary.with_, summaries(dumps("json", "weight"), 4))
    sent = pickle.loads(pickle.dumps(found))
    assert [x.spread for x in sent.cohorts.values()] == [x.spread for x in found.cohorts.values()]
    for cohort in (*found.cohorts.values(), *sent.cohorts.values()):
        sets = [bits for piles in cohort.spread.values() for bits, _ in (piles or {}).values()]
        assert len({id(bits) for bits in sets}) == len({*sets}) < len(sets) / 10


def test_columns_of_equal_bytes_are_read_once(dumps: Callable[..., Path]) -> None:
    """And those of other bytes are others, though the names of all records are the same."""
    ones, twos = (run.rank.documents[0].records for run in [*runs_of(dumps("parquet", ""), step=0)][:2])
    assert ones.records is twos.records and ones.tensors[1] is twos.tensors[1]
    assert ones.arguments[1] is twos.arguments[1] and ones.texts != twos.texts
    assert (ones.numbers != twos.numbers).any() and ones.is_like(twos)
    of_another_stage = [*runs_of(dumps("parquet", ""), step=0)][-1].rank.documents[0].records
    assert of_another_stage.tensors[1] is not ones.tensors[1] and not ones.is_like(of_another_stage)


def test_processes_say_the_same(larger: Path, alone: Ranks) -> None:
    assert said(ranks(larger, engine=in_processes(2))) == said(alone)


COPIES = """
import argparse, operator, threading
from probe_analysis.cli.options import engine

mark, may_end = "of a copy", threading.Event()
run = engine(argparse.Namespace(workers=2, engine=None, scheduler=None))
print(run(eval, ["hasattr(__import__('__main__'), 'mark')"] * 4, operator.add))
threading.Thread(target=may_end.wait).start()
print(run(eval, ["hasattr(__import__('__main__'), 'mark')"] * 4, operator.add))
may_end.set()
"""


def test_the_processes_of_a_command_are_copies_but_beside_another_thread() -> None:
    """It may hold a lock, which a copy would wait for without an end."""
    assert subprocess.check_output([sys.executable, "-c", COPIES], text=True).split() == ["4", "0"]


SCHEDULER = ["--engine", "dask", "--scheduler", "tcp://localhost:1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (SCHEDULER[:2], "--engine dask and --scheduler ADDRESS go together"),
        ([*SCHEDULER, "--workers", "2"], "--workers and --engine do not go together"),
        (["--workers", "0"], "from 1 up"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["anywhere", *words]) == 2
    assert told in capsys.readouterr().err


def test_tables_are_read_without_pandas(dumps: Callable[..., Path]) -> None:
    """Its import takes longer than to read a hundred ranks, in each process."""
    code = "import sys, probe_analysis as p; p.ranks(sys.argv[1]); assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(dumps("parquet", ""))], check=True)


@pytest.fixture(scope="module")
def some(dumps: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of 8 ranks."""
    folder = shutil.copytree(dumps("parquet", ""), tmp_path_factory.mktemp("some") / "tables")
    for place in folder.glob("*/step=0/rank=*"):
        if int(place.name.partition("=")[2]) >= 8:
            shutil.rmtree(place)
    return folder


def test_tables_that_are_damaged_are_skipped(some: Path, tmp_path: Path) -> None:
    shutil.copytree(some, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tensors/step=0/rank=5/rank5.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    found = ranks(tmp_path)
    assert [*found.skipped] == ["step0/rank5"] and found.state == "agree"
    file.unlink()
    assert [*ranks(tmp_path).skipped] == ["step0/rank5"]


@pytest.mark.parametrize(
    ("table", "column"),
    (("records", "record"), ("tensors", "norm"), ("arguments", "json"), ("runs", "header")),
)
def test_tables_of_another_form_are_skipped(table: str, column: str, some: Path, tmp_path: Path) -> None:
    shutil.copytree(some, tmp_path, dirs_exist_ok=True)
    file = tmp_path / table / "step=0/rank=5/rank5.parquet"
    parquet.write_table(parquet.read_table(file, partitioning=None).drop_columns([column]), file)
    for found in (ranks(tmp_path), probe_analysis.first_non_finite(tmp_path), trend(tmp_path, "weights")):
        if (table, type(found)) != ("arguments", probe_analysis.Trend):  # which reads no arguments
            assert [*found.skipped] == ["step0/rank5"]
            assert f"{file} has no column {column}" in found.skipped["step0/rank5"]


@pytest.mark.parametrize("ranks_of_it", [(1,), (0, 2)])
def test_a_record_that_the_export_could_not_read_is_told(
    ranks_of_it: tuple[int, ...], tmp_path: Path
) -> None:
    """In the tables as in the files: such a rank is skipped, and no value of it is said to be finite."""
    for rank in range(4):
        records = plain_dump.records(random.Random(0), 0, 0)
        if rank in ranks_of_it:
            records["Functional.layer_norm.0.forward"]["output"][0]["Max"] = "oops"
        write(tmp_path / "dump", rank, records)
    probe_analysis.export(tmp_path / "dump", tmp_path / "tables")
    found = [ranks(tmp_path / name) for name in ("dump", "tables")]
    assert found[0].sentence == found[1].sentence and found[1].first is None
    assert [*found[0].skipped] == [*found[1].skipped] == [f"step0/rank{rank}" for rank in ranks_of_it]
    told = [probe_analysis.first_non_finite(tmp_path / name).skipped for name in ("dump", "tables")]
    assert [*told[0]] == [*told[1]] == [f"step0/rank{rank}" for rank in ranks_of_it]


@pytest.mark.parametrize("form", WRITERS)
def test_who_reads_may_stand_in_another_folder(
    form: str, dumps: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = dumps(form, "weight")
    monkeypatch.chdir(dump.parent)
    run = pickle.loads(pickle.dumps(next(runs_of(dump.name))))  # as a worker of Dask gets it
    monkeypatch.chdir(tmp_path)
    assert len(run.rank.records) > 100


@pytest.mark.parametrize("name", ["\udcff", "\xe4", "a b"])
def test_tables_are_read_below_any_path(name: str, tmp_path: Path) -> None:
    write(tmp_path / "dump", 0, {"Torch.f.0.forward": {"output": [tensor()]}}, level="L1")
    folder = tmp_path / name
    for each in (folder, folder / "below"):
        probe_analysis.export(tmp_path / "dump", each)
        assert probe_analysis.diff(tmp_path / "dump", each).verdict.state == "same"


WITH_DOTS = (
    {"a": 1, "a.b": 2},
    {"a.b": 1, "a": 2},
    {"a.b": {"c": 1}, "a": [2, {"x": 3}]},
    {"": 1, ".": 2},
    {"type": {"0": 1, "1": [2, 3]}},
    {"1": 1, "0": {"0": 2}},
)


@pytest.mark.parametrize("given", WITH_DOTS)
@pytest.mark.parametrize("tensors", (True, False))
def test_tables_hold_what_the_dump_holds_whatever_its_names(
    given: Any, tensors: bool, tmp_path: Path
) -> None:
    def encoded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: encoded(each) for key, each in value.items()}
        if isinstance(value, list):
            return [*map(encoded, value)]
        numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), float(value))
        return tensor(shape=[1], **numbers) if tensors else {"type": "int", "value": value}

    record = {"input_args": [encoded(given), encoded(4)], "input_kwargs": {"d": encoded(given)}}
    write(tmp_path / "dump", 0, {"Torch.f.0.forward": record}, level="L1")
    probe_analysis.export(tmp_path / "dump", tmp_path / "tables")
    (one,), (two,) = (next(runs_of(tmp_path / name)).calls for name in ("dump", "tables"))
    read = [
        sorted(((value.slot, value.tensor["Max"]) for value in call.read().values), key=str)
        + sorted(call.read().others, key=str)
        for call in (one, two)
    ]
    assert read[0] == read[1] and len(read[0]) > 2
    assert probe_analysis.diff(tmp_path / "dump", tmp_path / "tables").verdict.state == "same"


def test_a_step_in_which_nothing_was_called_is_no_killed_one(
    dumps: Callable[..., Path], tmp_path: Path
) -> None:
    for place in (f"step{step}/rank{rank}" for step in (0, 1) for rank in range(4)):
        shutil.copytree(dumps("json", "") / "step0" / place.partition("/")[2], tmp_path / "dump" / place)
    for folder in (tmp_path / "dump/step1").iterdir():
        with changed(folder) as data:
            data.clear()
    probe_analysis.export(tmp_path / "dump", tmp_path / "tables")
    read = [
        [(run.rank.is_empty, run.was_cut) for run in runs_of(tmp_path / name)] for name in ("dump", "tables")
    ]
    assert read[0] == read[1] == [(False, False)] * 8
    assert said(ranks(tmp_path / "dump")) == said(ranks(tmp_path / "tables"))


@pytest.mark.parametrize("form", WRITERS)
def test_other_commands_read_tables_too(form: str, dumps: Callable[..., Path]) -> None:
    dump = dumps(form, "weight")
    found = probe_analysis.trend(dump, "weights", rank=ODD)
    assert found.series[0].points[0].rank == ODD and len(found.series) > 5
    assert probe_analysis.first_non_finite(dump, rank=3).state == "finite"


def _started(
    dump: Path, command: str = "ranks", before: Sequence[str] = ()
) -> tuple[subprocess.Popen[str], list[int]]:
    """A command with ``--workers 2`` of a group of its own, and the processes that read for it."""
    words = [*before, sys.executable, "-m", "probe_format", command, str(dump), "--workers", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def readers() -> list[int]:
        every = [int(each) for each in children.read_text().split()]
        commands = [Path(f"/proc/{each}/cmdline").read_bytes() for each in every]
        assert all(str(dump).encode() in each for each in commands)  # they are copies
        return every

    _until(lambda: len(readers()) == 2)
    return process, readers()


def _is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_is_heard_once_a_process_has_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The system gives the signal to any thread, as here to one that waits."""
    resource_tracker.ensure_running()  # a process that is no worker
    begin, may_end = multiprocessing.util.spawnv_passfds, threading.Event()  # type: ignore[attr-defined]
    other = threading.Thread(target=may_end.wait)
    other.start()

    processes: list[int] = []

    def begun(*about: Any) -> int:
        processes.append(begin(*about))
        signal.pthread_kill(other.ident or 0, signal.SIGINT)
        time.sleep(0.1)
        return processes[-1]

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", begun)
    with pytest.raises(KeyboardInterrupt):
        in_processes(2)(abs, range(8), max)
    may_end.set()
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process, 0)
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_ends_all_processes_without_a_traceback(larger: Path) -> None:
    process, readers = _started(larger)
    os.killpg(process.pid, signal.SIGINT)  # at once, while these are starting
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "", "probe ranks: stopped.\n")
    _until(lambda: not any(map(_is_there, readers)))


def test_signals_that_a_command_ignores_end_none_of_its_processes(larger: Path) -> None:
    process, _ = _started(larger, before=["sh", "-c", 'trap "" INT TERM; exec "$@"', "sh"])
    for each in (signal.SIGINT, signal.SIGTERM):
        os.killpg(process.pid, each)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (1, "") and out


@pytest.mark.parametrize("command", ["ranks", "nan"])
def test_a_process_that_is_killed_is_no_answer(command: str, larger: Path) -> None:
    process, readers = _started(larger, command)
    os.kill(readers[0], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"probe {command}: One of the processes that read the ranks was killed")


def test_a_process_that_is_killed_while_others_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these is waited for, and no thread of Python's pool fails on its own."""
    others, begun, failed = multiprocessing.active_children(), list[Any](), list[Any]()
    spawn = ProcessPoolExecutor._spawn_process  # type: ignore[attr-defined]

    def start(pool: Any) -> None:
        spawn(pool)
        begun.extend(each for each in multiprocessing.active_children() if each not in (*others, *begun))
        begun[0].kill()
        time.sleep(0.3)

    monkeypatch.setattr(ProcessPoolExecutor, "_spawn_process", start)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with pytest.raises(ProbeError, match="One of the processes that read the ranks was killed"):
        in_processes(3)(_takes_long, range(12), max)
    assert len(begun) == 3 and not failed
    _until(lambda: not any(each.is_alive() for each in begun))


def test_processes_end_with_the_one_that_started_them(larger: Path) -> None:
    process, readers = _started(larger)
    process.kill()
    process.communicate()
    _until(lambda: not any(map(_is_there, readers)))


@pytest.mark.parametrize("address", ("nonsense", "nonsense://host:1", ""))
def test_what_is_no_address_of_a_scheduler_is_told(
    address: str, dumps: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    assert main([str(dumps("json", "")), "--engine", "dask", "--scheduler", address]) == 2
    assert f"{address!r} is no address of a scheduler, as tcp://host:8786" in capsys.readouterr().err


@pytest.mark.slow
def test_what_dask_fails_with_is_told(cluster: Any) -> None:
    with pytest.raises(
        ProbeError, match=f"Dask at {cluster.scheduler_address} gives no answer: ZeroDivisionError"
    ):
        on_dask(cluster.scheduler_address)(_divides, [1, 2], max)
    with pytest.raises(FormatError, match="as it is"):
        on_dask(cluster.scheduler_address)(_refuses, [1, 2], max)


def _takes_long(part: int) -> int:
    """Take longer than it takes to see that a process was killed: the others would do all of it before."""
    time.sleep(1)
    return part


def _divides(part: int) -> float:
    return part / 0


def _refuses(part: object) -> None:
    raise FormatError("as it is")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    before = dict(os.environ)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster
    # Dask leaves MKL_NUM_THREADS=1 and its like behind, which the tests of other files would pass on to their runs.
    for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(before)


@pytest.mark.slow
def test_dask_says_the_same(dumps: Callable[..., Path], cluster: Any) -> None:
    for form in WRITERS:
        dump = dumps(form, "weight")
        assert said(ranks(dump, engine=on_dask(cluster.scheduler_address))) == said(ranks(dump))


@pytest.mark.slow
def test_dask_says_the_same_of_each_run(tmp_path: Path, cluster: Any) -> None:
    dump = broken(tmp_path)
    for asked in ASKED.values():
        found, on_cluster = asked(dump), asked(dump, engine=on_dask(cluster.scheduler_address))
        assert on_cluster.document("nan") == found.document("nan") and found.skipped


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers, each a process of its own, as on a cluster."""
    pytest.importorskip("distributed")
    file, log = tmp_path / "scheduler.json", (tmp_path / "log").open("wb")
    words = [["scheduler", "--port", "0"], *[["worker", "--nthreads", "1", "--no-nanny"]] * 2]
    end = ["--no-dashboard", "--scheduler-file", str(file)]
    made = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{kind}", *more, *end],
            stdout=log, stderr=log,
        )
        for kind, *more in words
    ]  # fmt: skip
    try:
        yield file, made
    finally:
        for process in made:
            process.kill()
            process.wait()
        log.close()


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(
    larger: Path, alone: Ranks, started: tuple[Path, list[subprocess.Popen[bytes]]]
) -> None:
    file, processes = started
    distributed = pytest.importorskip("distributed")
    _until(file.exists)
    address = json.loads(file.read_text())["address"]
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=120)

        def kill() -> None:
            _until(lambda: all(client.processing().values()))
            processes[1].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        found = ranks(larger, engine=on_dask(address))
        killer.join()
        assert len(client.scheduler_info()["workers"]) == 1
    assert said(found) == said(alone)


def _until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)
