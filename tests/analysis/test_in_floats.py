"""Records that are compared many at once: they differ by what each pair differs by, compared by itself."""

from __future__ import annotations

import copy
import math
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import plain_dump
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_analysis.align.alignment import align
from probe_analysis.calls.compact_run import CompactRun, Shared
from probe_analysis.calls.run import runs_of
from probe_analysis.compare.level import mark_of, marks_of
from probe_analysis.diff import call_diff
from probe_analysis.diff.call_diff import CallDiff, Comparison

#: How a record of the second run may differ from the first run's.
NUMBERS = ("nothing", "a number", "all numbers", "not finite", "whole", "everything", "no sums")
CHANGES = (*NUMBERS, "dtype", "an argument", "written over")


def change(how: str, record: dict[str, Any], draw: random.Random) -> None:
    """Change a record of the second run."""
    if how == "everything":
        parts = [*record.get("input_args", ()), *record.get("input", ()), *record.get("output", ())]
        for leaf in (*parts, *record.get("parameters", {}).values()):
            if isinstance(leaf, dict) and "Max" in leaf:
                leaf["Norm"] *= 1.25
    side = draw.choice([key for key in ("input_args", "input", "output") if record.get(key)] or ["weight"])
    tensors = [leaf for leaf in record.get(side, ()) if isinstance(leaf, dict) and "Max" in leaf]
    some = tensors and draw.choice(tensors)
    if how == "an argument" and "input_kwargs" in record:
        record["input_kwargs"]["scale"] = {"type": "float", "value": draw.random()}
    if not some:
        return
    if how == "a number":
        some[draw.choice(("Max", "Min", "Mean", "Norm"))] += 0.25
    elif how == "all numbers":
        for leaf in tensors:
            leaf |= {key: leaf[key] * 1.5 for key in ("Max", "Min", "Mean", "Norm")}
    elif how == "not finite":
        some["Max"] = draw.choice((math.inf, math.nan))
    elif how == "dtype":
        some["dtype"] = "torch.bfloat16"
    elif how == "whole":
        some["Max"] = 3
    elif how == "no sums":
        some |= {"Mean": None, "Norm": None}


def folder(place: Path, hows: list[str], seed: int) -> tuple[Path, Path]:
    """Write two dumps of as many records; each of the second has one of the changes."""
    draw = random.Random(seed)
    kinds = [x for x in plain_dump.records(draw, 0, 0).items() if "parameters_grad" not in x[0]]
    ones: dict[str, Any] = {}
    twos: dict[str, Any] = {}
    for n, how in enumerate(hows):
        name, record = draw.choice(kinds)
        if how == "written over":  # what it got may differ, and what it gives the same
            name, record = "Tensor.copy_.0.forward", {"input_args": [], "input_kwargs": {}, "output": []}
            record["input_args"] = [plain_dump.tensor(draw, [4]), plain_dump.tensor(draw, [4])]
            record["output"] = [plain_dump.tensor(draw, [4])]
        name = ".".join(str(n) if part.isdigit() else part for part in name.split("."))
        record = dict(sorted(record.items()))  # output before parameters, as Probe writes them
        ones[name], twos[name] = copy.deepcopy(record), copy.deepcopy(record)
        if how == "written over":
            twos[name]["input_args"][0]["Max"] += 1.0
            if draw.random() < 0.5:
                twos[name]["output"][0]["Max"] += 1.0
        change(how, twos[name], draw)
    for which, records in (("a", ones), ("b", twos)):
        plain_dump.put(place / which / "step0" / "rank0", records)
    return place / "a", place / "b"


def of(a: Path, b: Path) -> Comparison:
    shared = Shared()
    return Comparison(*(CompactRun.of(next(runs_of(path)), shared) for path in (a, b)), load=False)


def said(each: CallDiff) -> str:
    """What is found of a pair as text, in which NaN is equal to itself."""
    values = [(v.slot, v.side, str(v.distance), v.level and v.level.largest, v.is_lone) for v in each.values]
    return repr((each.pair.a.name, each.changed, values, each.arguments, each.unshared, each.blind))


@given(
    st.lists(st.sampled_from(CHANGES), min_size=1, max_size=30),
    st.integers(0, 99),
    st.sampled_from((1, 3, 1024)),
)
def test_many_at_once_differ_as_each_by_itself(hows: list[str], seed: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_diff, "AT_ONCE", at_once)
        paths = folder(Path(place), hows, seed)
        at_once_, alone = of(*paths), of(*paths)
        pairs = align(at_once_.a, at_once_.b).pairs
        found = [*at_once_.each(pairs)]
        truth = [alone.of(pair) for pair in align(alone.a, alone.b).pairs]
        assert [*map(said, found)] == [*map(said, truth)]
        # Their rows lie in the order of the calls, with the numbers of each where its own are.
        sides = [(x.rows.start, x.rows.stop) for x in found if x.changed]
        assert sides == sorted(sides)


def test_what_floats_tell_is_not_compared_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost: a record is taken apart alone only where something else than finite floats is in it."""
    paths = folder(tmp_path, ["all numbers", "nothing", "a number"] * 30 + ["not finite"] * 4, 5)
    how, alone = of(*paths), list[str]()
    truth = Comparison.of
    monkeypatch.setattr(
        Comparison, "of", lambda self, pair: (alone.append(pair.a.name), truth(self, pair))[1]
    )
    found = [*how.each(align(how.a, how.b).pairs)]
    assert len(found) > 60
    assert len(alone) <= len(found) // 4


def test_one_mark_of_the_same_numbers() -> None:
    draw = random.Random(3)
    pairs = [(plain_dump.tensor(draw, [2]), plain_dump.tensor(draw, [2])) for _ in range(200)]

    rows = np.array([[t[key] for t in pair for key in ("Max", "Min", "Mean", "Norm")] for pair in pairs])
    marks = marks_of(rows).tolist()
    assert marks == [mark_of(*pair) for pair in pairs]
    assert len({*marks}) == len(pairs)
    for column in range(8):  # each number counts, and its place
        other = rows.copy()
        other[:, column] = np.nextafter(other[:, column], 99.0)
        assert not {*marks_of(other).tolist()} & {*marks}
    assert not {*marks_of(rows[:, ::-1]).tolist()} & {*marks}
