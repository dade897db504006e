"""Whose work a call was, as the script says it: requests in flight are never mixed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import probe_format
import pytest
from documents import rank_dir, records, report, strict, validate
from framework import Framework
from opening import opened
from probe_format.errors import UsageError


@pytest.fixture
def chain(framework: Framework) -> Any:
    return framework.sequence(framework.linear(3, 3), framework.linear(3, 1))


def header(folder: Path, step: int = 0) -> Any:
    return strict(rank_dir(folder / "dump", step) / "dump.json")


def labels_of(folder: Path, part: str = "", step: int = 0) -> list[str | None]:
    """The labels of the forward records with this in their name."""
    found = records(folder / "dump", step)
    return [r.get("label") for name, r in found.items() if ".forward" in name and part in name]


def test_requests_in_flight_are_told_apart(framework: Framework, chain: Any, tmp_path: Path) -> None:
    """Each request computes with a size of its own, and calls the model in turn with the others.

    One at a time, as MindSpore ends the process where two threads compute at once.
    """
    requests = 6
    all_here, one = threading.Barrier(requests), threading.Lock()
    with opened(framework.debugger, tmp_path, level="mix") as debugger:

        def handle(number: int) -> None:
            with debugger.label(f"req-{number}"):
                for _ in range(3):
                    all_here.wait(30)
                    with one:
                        chain(framework.ones(number + 1, 3))

        debugger.start(chain)
        with ThreadPoolExecutor(requests) as pool:
            list(pool.map(handle, range(requests)))
        debugger.stop()
        debugger.step()
    validate(rank_dir(tmp_path / "dump"))
    names = [f"req-{number}" for number in range(requests)]
    for document in (header(tmp_path), report(tmp_path / "dump")["header"]):
        assert sorted(document["labels"]) == names
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    assert sorted(rank.labels) == names
    rows = {record.name: record.tensors[0].shape[0] for record in rank.records if record.tensors}
    of_dense = [name for name in rows if framework.linear.__name__ in name]
    assert len(of_dense) == requests * 3 * 2
    for name in rows:
        assert rank.records[name].label == f"req-{rows[name] - 1}"


def test_a_label_holds_until_the_next_or_the_end_of_its_block(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, level="L0") as debugger:
        debugger.label("before")  # before the step begins
        debugger.start(chain)
        chain(framework.ones(1, 3))
        with framework.debugger.label("inside"):  # works on the class
            chain(framework.ones(1, 3))
            with debugger.label(None):
                chain(framework.ones(1, 3))
            chain(framework.ones(1, 3))
        chain(framework.ones(1, 3))
        debugger.label(None)
        chain(framework.ones(1, 3))
        debugger.stop()
        debugger.step()
        debugger.start(chain)
        chain(framework.ones(1, 3))
        debugger.stop()
        debugger.step()
    inner = f"{framework.kind}.0."
    assert labels_of(tmp_path, inner) == ["before", "inside", None, "inside", "before", None]
    assert header(tmp_path)["labels"] == ["before", "inside"]
    assert labels_of(tmp_path, inner, 1) == [None]
    assert "labels" not in header(tmp_path, 1)


def test_gradients_have_the_label_of_their_call(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="mix") as debugger:
        debugger.start(chain)
        with debugger.label("=1+1"):  # what a spreadsheet would compute
            framework.train(chain, framework.ones(1, 3))
        framework.train(chain, framework.ones(1, 3))
        debugger.stop()
        debugger.step()
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    dense = f"{framework.kind}.0.{framework.linear.__name__}"
    for direction in ("forward", "backward"):
        assert [rank.records[f"{dense}.{direction}.{n}"].label for n in (0, 1)] == ["=1+1", None]
    assert rank.labels == ("=1+1",)
    assert rank.records[f"{dense}.parameters_grad"].label is None


def test_tasks_of_asyncio_are_told_apart(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L0") as debugger:

        async def handle(number: int) -> None:
            debugger.label(f"req-{number}")
            for _ in range(3):
                await asyncio.sleep(0)
                chain(framework.ones(number + 1, 3))

        async def serve() -> None:
            await asyncio.gather(*map(handle, range(4)))

        debugger.start(chain)
        asyncio.run(serve())
        debugger.stop()
        debugger.step()
    found = records(tmp_path / "dump").items()
    seen = {(r["input_args"][0]["shape"][0], r["label"]) for name, r in found if ".forward" in name}
    assert seen == {(number + 1, f"req-{number}") for number in range(4)}


def test_a_step_without_values_has_its_labels_in_the_header(
    framework: Framework, chain: Any, tmp_path: Path
) -> None:
    with opened(framework.debugger, tmp_path, task="structure") as debugger:
        debugger.start(chain)
        with debugger.label("req-1"):
            chain(framework.ones(1, 3))
        debugger.stop()
        debugger.step()
    assert header(tmp_path)["labels"] == report(tmp_path / "dump")["header"]["labels"] == ["req-1"]


def test_a_run_that_is_cut_off_has_its_labels(framework: Framework, chain: Any, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L0") as debugger:
        debugger.start(chain)
        with debugger.label("req-1"):
            chain(framework.ones(1, 3))
        (rank,) = probe_format.open(tmp_path / "dump").ranks  # as a kill would leave it
        assert (rank.source, rank.labels) == ("journal", ("req-1",))
        assert {record.label for record in rank.records} == {"req-1"}


def test_a_label_is_a_text(framework: Framework, tmp_path: Path) -> None:
    with opened(framework.debugger, tmp_path, level="L1") as debugger:
        for wrong in ("", 42, b"req"):
            with pytest.raises(UsageError, match="label wants a text"):
                debugger.label(wrong)


def test_where_no_calls_are_recorded_a_label_says_so(framework: Framework, tmp_path: Path) -> None:
    said = pytest.warns(RuntimeWarning, match="label.. has no effect at level debug")
    with opened(framework.debugger, tmp_path, level="debug") as debugger, said:
        debugger.label("req-1")
