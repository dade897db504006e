"""What asks each run of a dump alone: the same answer in any order and grouping, in processes, and on Dask."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_dump import write
from probe_analysis import first_non_finite, in_processes, trend
from probe_analysis.frame import Framed
from probe_format.cli.main import main
from probe_format.errors import FormatError

#: The words of a command -> the function behind it.
ASKED: dict[str, Callable[..., Framed]] = {
    "nan": first_non_finite,
    "trend gradients": partial(trend, quantity="gradients"),
    "trend updates": partial(trend, quantity="updates"),
    "trend activations": partial(trend, quantity="activations", statistic="magnitude"),
}


def broken(folder: Path, steps: int = 3) -> Path:
    """A dump of some steps and ranks, of which one cannot be read in one step."""
    write(folder, steps, 4)
    (folder / "step1/rank2/dump.json").write_text("{")
    return folder


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken(tmp_path_factory.mktemp("plans"))


def said(found: Framed) -> Any:
    return found.document("nan"), repr(found)


def scattered(draw: random.Random) -> Any:
    """An engine that works in any order, unites in any grouping, and sends all of it as to another process."""

    def run(work: Any, parts: Any, unite: Any, done: Any = None) -> Any:
        work, unite, parts = (pickle.loads(pickle.dumps(each)) for each in (work, unite, [*parts]))
        draw.shuffle(parts)
        left = [pickle.dumps(work(part)) for part in parts]
        while len(left) > 1:
            draw.shuffle(left)
            left.append(pickle.dumps(unite(pickle.loads(left.pop()), pickle.loads(left.pop()))))
        return pickle.loads(left[0])

    return run


@pytest.mark.parametrize("asked", ASKED)
@settings(max_examples=10, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_any_order_and_grouping_gives_the_same(asked: str, draw: random.Random, dump: Path) -> None:
    found = ASKED[asked](dump)
    assert said(ASKED[asked](dump, engine=scattered(draw))) == said(found)
    assert [*found.skipped] == ["step1/rank2"]


@pytest.mark.parametrize("asked", ["nan", "trend updates"])
def test_processes_print_the_same(asked: str, dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, *words = asked.split()
    printed = []
    for more in ([], ["--workers", "2"]):
        assert main([command, str(dump), *words, "--format", "json", *more]) in (0, 1)
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1] and "step1/rank2 is skipped" in printed[0].err


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_kept_of_a_run_is_small(asked: str, dump: Path) -> None:
    """Of what was read of it nothing stays, in the process that read it either."""
    kept = []

    def run(work: Any, parts: Any, unite: Any, done: Any = None) -> Any:
        for part in parts:
            kept.append(len(pickle.dumps(work(part))) / len(part))
            for _, each in part:
                assert {*vars(each)} == {"label", "rank"} and "records" not in vars(each.rank)
                assert not {"documents", "construct", "stack"} & {*vars(each.rank)}
        raise FormatError("as far as this")

    with pytest.raises(FormatError, match="as far as this"):
        ASKED[asked](dump, engine=run)
    assert len(kept) == (4 if asked == "trend updates" else 12)
    assert max(kept) < 0.35 * (dump / "step0/rank0/dump.json").stat().st_size


def test_none_that_can_be_read_is_an_error(tmp_path: Path) -> None:
    for file in write(tmp_path, 1, 2).rglob("dump.json"):
        file.write_text("{")
    for ask in ASKED.values():
        with pytest.raises(FormatError, match="rank0"):
            ask(tmp_path, engine=scattered(random.Random(0)))
    with pytest.raises(FormatError, match="rank0"):
        first_non_finite(tmp_path, engine=in_processes(2))


def test_progress_names_what_is_read(dump: Path) -> None:
    told = []
    for ask in ASKED.values():
        ask(dump, progress=lambda *each: told.append(each))
    runs = [(f"step{n // 4}/rank{n % 4}", n + 1, 12) for n in range(12)]
    assert told == [*runs, *runs, *((f"step2/rank{n}", n + 1, 4) for n in range(4)), *runs]
