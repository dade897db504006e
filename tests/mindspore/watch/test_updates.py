"""What task `watch` sees of MindSpore's own ways to train: Cells for a step, and graphs with the update inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from contract_watch import rows_of
from mindspore import Tensor, nn
from mindspore.common import initializer
from mindspore_dumping import bits
from probe_format.watch import WatchFile, watch_files
from probe_mindspore import PrecisionDebugger, ProbeStep


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
    assert file.unseen == []
    assert all((row["activations", "0.output.0"] or 0.0) > 0.0 for row in rows_of(file))


class Unread(nn.Cell):
    """Return a tensor that nobody can read: its numbers are not drawn yet."""

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, Tensor(shape=(2, 4), dtype=ms.float32, init=initializer.One())


def test_what_nobody_can_read_is_said(pynative: None, tmp_path: Path) -> None:
    net = nn.SequentialCell(Unread())
    with PrecisionDebugger(dump_path=str(tmp_path), task="watch", list=["Unread"]) as debugger:
        debugger.start(net)
        with pytest.warns(
            RuntimeWarning, match="activations of 0.output.1: not watched. A tensor of its class"
        ):
            net(x_and_y()[0])
            debugger.stop()
            debugger.step()
    (file,) = watch_files(tmp_path)
    assert "activations of 0.output.1" in [what for what, _ in file.unseen]
    assert rows_of(file)[0] == {
        ("activations", "0.output.0"): pytest.approx(6**0.5),
        ("activations", "0.output.1"): None,
    }


def test_a_graph_with_the_update_inside_says_what_it_does_not_tell(pynative: None, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="gradients and moments: not watched. Python called no optimizer"):
        file, norms = trained(tmp_path, graph=True)
    rows = rows_of(file)
    assert [row["weights", "0.weight"] for row in rows] == pytest.approx(norms[1:], rel=1e-5)
    assert not [column for column in file.columns if column.kind == "gradients"]
    assert [what for what, _ in file.unseen] == ["gradients and moments"]
    assert (rows[1]["updates", "0.weight"] or 0.0) > 0.0


STEPS = 4


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        (random.normal(size=(5, 3)).astype(np.float32), random.normal(size=(5, 2)).astype(np.float32))
        for _ in range(STEPS)
    ]


def trained_by_the_model(folder: Path | None, *, graph: bool) -> list[bytes]:
    """The bits of the weights after an epoch of `Model.train`. folder: to watch into; None for a plain run."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    net = nn.SequentialCell(nn.Dense(3, 2, weight_init="ones", bias_init="zeros"))
    data = ms.dataset.GeneratorDataset(batches(), ["x", "y"], shuffle=False)
    model = ms.train.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    if folder is None:
        model.train(1, data, dataset_sink_mode=False)
    else:
        with PrecisionDebugger(
            dump_path=str(folder), task="watch", moments=True, updates=True, list=["0."]
        ) as debugger:
            model.train(1, data, callbacks=[ProbeStep(debugger)], dataset_sink_mode=False)
    return bits(list(net.get_parameters()))


def by_hand() -> list[dict[tuple[str, str], float]]:
    """The same training in numpy, in float64."""
    held = {"0.weight": np.ones((2, 3)), "0.bias": np.zeros(2)}
    moments = {name: np.zeros_like(p) for name, p in held.items()}
    rows = []
    for x, y in batches():
        out = x @ held["0.weight"].T + held["0.bias"]
        error = 2 * (out - y) / out.size
        row = {("activations", "0.output.0"): np.linalg.norm(out)}
        for name, grad in (("0.weight", error.T @ x), ("0.bias", error.sum(0))):
            row["gradients", name], row["weights", name] = np.linalg.norm(grad), np.linalg.norm(held[name])
            row["moments", f"{name}.moments"] = np.linalg.norm(moments[name])
            moments[name] = 0.9 * moments[name] + grad
            held[name] = held[name] - 0.1 * moments[name]
            row["updates", name] = np.linalg.norm(0.1 * moments[name])
        rows.append({name: float(norm) for name, norm in row.items()})
    return rows


def test_the_steps_of_model_train_are_those_computed_by_hand(pynative: None, tmp_path: Path) -> None:
    assert trained_by_the_model(tmp_path, graph=False) == trained_by_the_model(None, graph=False)
    (file,) = watch_files(tmp_path)
    assert (file.state, file.faults, file.unseen) == ("complete", [], [])
    assert [row.step for row in file.rows] == [*range(STEPS)]
    for found, wanted in zip(rows_of(file), by_hand(), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)


def test_model_train_in_a_graph_has_the_weights_after_each_step(pynative: None, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="not watched"):
        bits = trained_by_the_model(tmp_path, graph=True)
    assert bits == trained_by_the_model(None, graph=True)
    (file,) = watch_files(tmp_path)
    assert file.faults == []
    assert {what for what, _ in file.unseen} == {"gradients and moments", "what Cell.0.Dense returns"}
    wanted = [{name[1]: norm for name, norm in row.items() if name[0] == "weights"} for row in by_hand()]
    found = [{name[1]: norm for name, norm in row.items() if name[0] == "weights"} for row in rows_of(file)]
    assert len(found) == STEPS
    for row, after in zip(found, wanted[1:], strict=False):
        assert row == pytest.approx(after, rel=1e-4)
