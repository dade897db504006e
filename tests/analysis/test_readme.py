"""The README's example on dumps that a reader has: test_wheels.py runs those that need none."""

from __future__ import annotations

from pathlib import Path

import plain_dump
import pytest
from blocks import blocks_of

README = Path(__file__).parents[2] / "packages" / "probe-analysis" / "README.md"


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, name in enumerate(("good", "bad", "dump")):
        plain_dump.write(tmp_path / name, seed=seed)
    monkeypatch.chdir(tmp_path)
    (example,) = (block.text for block in blocks_of(README) if block.mark == "no-run")
    exec(example, {})
    said = capsys.readouterr().out
    assert said.startswith("different ")
    assert "Module.head.MLP.forward.0" in said
    assert said.count("[(0, 0, ") == 3  # the points of three series
