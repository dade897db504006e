"""What a notebook shows of a result: short as text, and the first rows of its frame as a table."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import plain_dump
import probe_analysis
import probe_format
import pytest

_MOST = 2500


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One of each result, of dumps of 20 steps and 4 ranks."""
    folder = tmp_path_factory.mktemp("repr")
    a, b = (plain_dump.write(folder / name, 20, 4, seed) for seed, name in enumerate("ab"))
    whole = [probe_analysis.diff(a, b), probe_analysis.first_non_finite(a), probe_analysis.ranks(a)]
    page = probe_analysis.report(a, b)
    return [
        *whole,
        probe_analysis.trend(a),
        page,
        probe_analysis.export(a, folder / "out"),
        probe_format.open(a),
    ]


def parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """A result and all objects in it that are of Probe's classes."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if attrs.has(type(value)):
        yield value
        for each in attrs.fields(type(value)):
            yield from parts(getattr(value, each.name), seen)
    elif isinstance(value, list | tuple):
        for each in value[:5]:
            yield from parts(each, seen)


def test_no_part_of_a_result_fills_the_screen(results: list[Any]) -> None:
    kinds = set()
    assert all(len(repr(result)) < 600 for result in results)
    for result in [*results, results[0].runs[0].calls]:
        seen: set[int] = set()
        for part in parts(result, seen):
            kinds.add(type(part).__name__)
            assert len(repr(part)) < _MOST, type(part)
    assert kinds > {"Diff", "RunDiff", "CallDiff", "Finding", "Disagreement"}
    assert kinds > {"Series", "Rank", "Step", "Call"}
    rank = results[-1].ranks[0]
    for each in (rank.stack, rank.construct, rank.documents, rank.records, rank.lost):
        assert len(repr(each)) < _MOST


def test_a_notebook_shows_the_sentence_and_the_first_rows(results: list[Any], monkeypatch: Any) -> None:
    pytest.importorskip("pandas")
    for result in results[:4]:
        shown = result._repr_html_()
        rows = len(result.frame())
        assert shown.count("<tr>") + shown.count("<tr ") == min(rows, 20) + 1
        assert (f"<p>{rows - 20} more rows: frame()</p>" in shown) == (rows > 20)
        assert shown.startswith(f"<p>{result.sentence[:20]}")
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "<table" not in results[0]._repr_html_()


def test_what_a_dump_names_is_no_html(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J"
    for name, value in (("a", 1.0), ("b", 2.0)):
        tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1]}
        record = {"output": [tensor | dict.fromkeys(("Max", "Min", "Mean", "Norm"), value)]}
        plain_dump.put(tmp_path / name / "step0" / "rank", {f"Functional.{hostile}.0.forward": record})
    found = probe_analysis.diff(tmp_path / "a", tmp_path / "b")
    assert "\x1b" not in repr(found) and "\x1b" not in found._repr_html_()
    assert "<script>" not in found._repr_html_()
