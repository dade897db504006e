"""SIGKILL at any instant after save() has returned loses nothing: the record is there, its file is whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import pytest
from killing import Server, kill, serving
from probe_format.read.verify import verify
from probe_format.write import recover

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
KILLS = 16


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(HERE / "saving_killed.py") as found:
        yield found


def expected(record: Any) -> Any:
    from saving_killed import array

    name, number = record.name.split(".")[0], int(record.name.split(".")[1])
    if name == "array":
        return array(2 * number)
    values = array(2 * number + 1)
    return 2 * values if name == "tensor_grad" else values


@pytest.mark.parametrize("seed", range(KILLS))
def test_nothing_acknowledged_is_lost(server: Server, tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    delay = choose.uniform(0, 0.004) if seed % 2 else None
    acknowledged = set(kill(server, choose.randrange(2, 150), delay, dump=str(tmp_path / "dump")))
    (rank,) = probe_format.open(tmp_path / "dump").ranks
    closed = (rank.path / "report.json").is_file()  # all but said
    assert closed or "closed" not in acknowledged
    assert rank.source == ("files" if closed else "journal")
    names = acknowledged - {"made", "closed"}
    assert names
    assert names <= set(rank.records.names)
    for record in rank.records:
        for tensor in record.tensors:
            assert np.array_equal(tensor.load(), expected(record)), tensor.name
        assert record.tensors or record.name not in names
    if not closed:
        (verdict,) = verify(tmp_path / "dump")
        assert verdict.state == "torn", verdict
        (outcome,) = recover(tmp_path / "dump")
        assert outcome.outcome == "whole"
        assert (rank.path / "debug.json").is_file()
        assert not (rank.path / "dump.json").exists()
        (verdict,) = verify(tmp_path / "dump")
        assert verdict.state == "recovered", verdict
        (again,) = probe_format.open(tmp_path / "dump").ranks
        assert again.records.names == rank.records.names
