"""The demo runs, trains, and its table says what is in the dump."""

from pathlib import Path

import mindspore as ms
import probe_format
import pytest
from probe_mindspore import demo

pytestmark = pytest.mark.once

SMALL = ["--steps", "5", "--layers", "1", "--width", "16"]


@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_the_demo(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([*SMALL, "--mode", mode, "--out", str(tmp_path)]) == 0
    assert ms.get_context("mode") == ms.PYNATIVE_MODE
    said = capsys.readouterr().out
    losses = [float(line.split("loss")[1].split()[0]) for line in said.splitlines() if "loss" in line]
    assert len(losses) == 5 and losses[-1] < losses[0]
    assert "dumped step" in said and "faults          none" in said
    ranks = probe_format.open(tmp_path / mode / "dump").ranks
    assert [rank.step for rank in ranks] == [2, 3]
    for rank in ranks:
        assert "Cell.blocks.0.up.Dense.forward.0" in rank.records
        assert "Cell.blocks.0.up.Dense.backward.0" in rank.records


def test_too_few_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--steps", "2"])
    assert "--steps must be at least" in capsys.readouterr().err
