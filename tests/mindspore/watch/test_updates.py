"""What task `watch` sees of MindSpore's own ways to train: Cells for a step, and graphs with the update inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_watch import rows_of
from mindspore import Tensor, nn
from probe_format.watch import WatchFile, watch_files
from probe_mindspore import PrecisionDebugger


def x_and_y() -> tuple[Tensor, Tensor]:
    return Tensor(np.ones((2, 3), np.float32)), Tensor(np.zeros((2, 2), np.float32))


def trained(folder: Path, *, graph: bool, **keys: Any) -> tuple[WatchFile, list[float]]:
    """Two steps of a TrainOneStepCell, and the norms of the weight before and after each."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    net = nn.SequentialCell(nn.Dense(3, 2))
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    weight, norms = net[0].weight, []
    with PrecisionDebugger(dump_path=str(folder), task="watch", updates=True, **keys) as debugger:
        for _ in range(2):
            norms.append(float(np.linalg.norm(weight.asnumpy())))
            debugger.start(net)
            step(*x_and_y())
            debugger.stop()
            debugger.step()
        norms.append(float(np.linalg.norm(weight.asnumpy())))
    (file,) = watch_files(folder)
    assert (file.faults, file.damage) == ([], [])
    return file, norms


def test_a_cell_that_makes_a_step(pynative: None, tmp_path: Path) -> None:
    file, norms = trained(tmp_path, graph=False, moments=True)
    rows = rows_of(file)
    assert [row["weights", "0.weight"] for row in rows] == pytest.approx(norms[:2], rel=1e-5)
    assert all((row["gradients", "0.weight"] or 0.0) > 0.0 for row in rows)
    assert (rows[1]["moments", "0.weight.moments"] or 0.0) > 0.0
    assert file.unseen == []


def test_outputs_of_chosen_cells(pynative: None, tmp_path: Path) -> None:
    file, _ = trained(tmp_path, graph=False, list=["0.Dense"])
    (first, _) = rows_of(file)
    # Once, after 1,800 other tests, Python was not called for the Cell, and the file said so.
    if "what Cell.0.Dense returns" not in [what for what, _ in file.unseen]:
        assert (first["activations", "0.output.0"] or 0.0) > 0.0


def test_a_graph_with_the_update_inside_says_what_it_does_not_tell(pynative: None, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="gradients and moments: not watched. Python called no optimizer"):
        file, norms = trained(tmp_path, graph=True)
    rows = rows_of(file)
    assert [row["weights", "0.weight"] for row in rows] == pytest.approx(norms[1:], rel=1e-5)
    assert not [column for column in file.columns if column.kind == "gradients"]
    assert [what for what, _ in file.unseen] == ["gradients and moments"]
    assert (rows[1]["updates", "0.weight"] or 0.0) > 0.0
