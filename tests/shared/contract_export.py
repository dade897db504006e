"""Key `export`: whatever happens to the store and to the writer, the run goes on, and is told of it once."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from contract_budget import Run
from documents import strict
from framework import Framework
from probe_format.layout import find_steps
from probe_format.read.verify import verify

dataset = pytest.importorskip("pyarrow.dataset", exc_type=ImportError)

__all__ = [
    "exported", "followers", "reports", "steps", "test_a_store_that_never_comes_is_in_the_reports",
    "test_a_writer_that_is_killed_is_told_once", "test_tables_are_within_the_limit",
    "test_the_run_computes_what_it_computes_without", "test_without_a_package_the_run_goes_on", "wait_for",
]  # fmt: skip


def reports(dump: Path) -> Iterator[tuple[tuple[int, str], dict[str, Any]]]:
    """(step, name of the rank's folder) and report of what has ended."""
    for step in find_steps(dump):
        for file in step.path.glob("*/report.json"):
            found = strict(file)
            if found["state"] == "complete":
                yield (step.step, file.parent.name), found


def wait_for(what: Callable[[], bool], why: str, pause: float = 0.05) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(pause)


def exported(dump: Path) -> bool:
    """Whether the reports say of all steps that they are in the tables, and nobody writes any more."""
    return followers(dump) == 0 and all(
        each.get("export", {}).get("why", "not yet") is None for _, each in reports(dump)
    )


def followers(dump: Path) -> int:
    words = f"export\0{dump}\0".encode()
    count = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            count += words in each.read_bytes()
    return count


def steps(framework: Framework, dump: Path, count: int, **keys: Any) -> list[str]:
    """Dump steps in this process, and return what was told about the export."""
    net = framework.linear(4, 4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with framework.debugger(dump_path=str(dump), level="mix", **keys) as debugger:
            for _ in range(count):
                with debugger.one_step(net):
                    framework.train(net, framework.ones(2, 4))
                time.sleep(0.1)
            exporter = debugger.session.exporter
            until = time.monotonic() + 60
            while not exporter.has_trouble and not all("export" in each for _, each in reports(dump)):
                assert time.monotonic() < until
                debugger.step()  # looks for what there is to tell
                time.sleep(0.1)
            debugger.step()
    return [str(each.message) for each in told if "export" in str(each.message)]


def test_a_store_that_never_comes_is_in_the_reports(framework: Framework, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    dump = tmp_path / "dump"
    (told,) = steps(framework, dump, 2, export=str(tmp_path / "file" / "below"))
    assert "cannot be written" in told and "its JSON is whole" in told
    wait_for(lambda: followers(dump) == 0, "it does not end")
    whys = [each["export"]["why"] for _, each in reports(dump)]  # tried in turn, again and again
    assert len(whys) == 2 and all("NotADirectoryError" in why for why in whys)
    assert {verdict.state for verdict in verify(dump)} == {"complete"}


@pytest.mark.parametrize(
    ("module", "what"), [("pyarrow", "probe-analysis[export]"), ("s3fs", "Install s3fs")]
)
def test_without_a_package_the_run_goes_on(
    framework: Framework, module: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is late, so that steps are told of by then: a socket whose other end left words unread says that first.
    late = "import time; time.sleep(1); raise ImportError('it is not installed')"
    (tmp_path / f"{module}.py").write_text(late)
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    monkeypatch.setenv("PYTHONPATH", path)
    (told,) = steps(framework, tmp_path / "dump", 3, export="s3://bucket/run")
    assert what in told
    assert {verdict.state for verdict in verify(tmp_path / "dump")} == {"complete"}
    assert not any(each.get("export", {"why": ""})["why"] is None for _, each in reports(tmp_path / "dump"))


def test_a_writer_that_is_killed_is_told_once(framework: Framework, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with framework.debugger(dump_path=str(dump), export="parquet") as debugger:
            for step in range(4):
                with debugger.one_step():
                    framework.gelu()
                if step == 1:
                    process = debugger.session.exporter.process
                    process.kill()
                    process.wait()
    (said,) = (str(each.message) for each in told if "export" in str(each.message))
    assert "nothing more is exported" in said and "-9" in said
    assert len(list(reports(dump))) == 4


def test_tables_are_within_the_limit(framework: Framework, tmp_path: Path) -> None:
    limit = 2_000_000
    run = Run(framework, tmp_path / "dump", task="statistics", max_bytes=limit, export="parquet").steps(12)
    run.debugger.close()
    wait_for(lambda: exported(run.dump), "the tables are not there")
    run.look()
    count = len(list(reports(run.dump)))
    assert limit // 4 < run.most <= limit
    assert 2 < count < 12 and "max_bytes" in " ".join(run.told)
    assert dataset.dataset(run.dump / "parquet" / "runs").count_rows() == count


def test_the_run_computes_what_it_computes_without(framework: Framework, tmp_path: Path) -> None:
    def grown(**keys: Any) -> list[Any]:
        x = framework.ones(2, 2)
        with framework.debugger(dump_path=str(tmp_path / f"dump{len(keys)}"), **keys) as debugger:
            for _ in range(3):
                with debugger.one_step():
                    x = framework.functions.gelu(x)
        return [
            framework.array(x).tolist(),
            [report["norms"] for _, report in reports(tmp_path / f"dump{len(keys)}")],
        ]

    assert grown(export="parquet") == grown()
    wait_for(lambda: exported(tmp_path / "dump1"), "the tables are not there")
    found = (
        dataset.dataset(tmp_path / "dump1" / "parquet" / "tensors").to_table(["record", "role"]).to_pylist()
    )
    assert sorted(each["role"] for each in found) == ["input"] * 3 + ["output"] * 3
