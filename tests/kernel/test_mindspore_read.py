"""A real training step under MindSpore's own dumper: every file read back, and equal to the network's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import probe_format
import probe_kernel
import pytest
from mindspore_launching import FORKS, run_ranks
from probe_format.cli.main import main
from probe_format.read.verify import verify
from probe_kernel.export.export import export
from probe_kernel.read.dump import Dump, Iteration
from probe_kernel.trace.find_line import Hit, Line, find

pytest.importorskip("mindspore")

SCRIPT = Path(__file__).with_name("alexnet_script.py")
LINES = {
    line.partition("# line: ")[2].strip(): number
    for number, line in enumerate(SCRIPT.read_text().splitlines(), start=1)
    if "# line: " in line
}


@pytest.fixture(scope="module", params=["O0", "O1"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The dump of two steps, and what the network itself says; with and without fused kernels."""
    out = tmp_path_factory.mktemp(f"alexnet{request.param}")
    FORKS.run(str(SCRIPT), str(out), request.param)
    return probe_kernel.open(out / "dump"), np.load(out / "truth0.npz")


@pytest.fixture
def dump(trained) -> Dump:
    return trained[0]


@pytest.fixture
def truth(trained):
    return trained[1]


def steps(dump: Dump) -> list[Iteration]:
    (rank,) = dump.ranks
    found = [i for i in rank.iterations if any(k.op_type == "SGD" for k in i.kernels)]
    assert len(found) == 2
    return found


def test_every_file_is_read_back(dump: Dump) -> None:
    assert list(dump.problems) == []
    files = set(Path(dump.path).glob("**/*.npy"))
    slots = [slot for iteration in dump.iterations for kernel in iteration.kernels for slot in kernel.slots]
    assert {slot.file for slot in slots} == files and len(files) > 100
    for slot in slots:
        values = slot.load()
        assert values.shape == slot.shape
        assert values.dtype.name == slot.dtype.lower()


def test_the_metadata(dump: Dump) -> None:
    (rank,) = dump.ranks
    assert rank.number == 0
    assert rank.metadata["config"]["device_target"] == "CPU"
    assert rank.metadata["data_dump"]["common_dump_settings"]["net_name"] == "AlexNet"
    assert set(rank.history.values()) >= {(0, 1)}


@pytest.mark.once
def test_two_ranks(tmp_path: Path) -> None:
    run_ranks(str(SCRIPT), str(tmp_path), "O0")
    dump = probe_kernel.open(tmp_path / "dump")
    assert list(dump.problems) == []
    assert [rank.number for rank in dump.ranks] == [0, 1]
    weights = []
    for rank in dump.ranks:
        truth = np.load(tmp_path / f"truth{rank.number}.npz")
        first = next(i for i in rank.iterations if any(k.op_type == "SGD" for k in i.kernels))
        weights.append(first.kernel("conv1-Conv2d/Conv2D-op0").slot("input", 1).load())
        np.testing.assert_array_equal(weights[-1], truth["before0.conv1.weight"])
    assert not np.array_equal(*weights)  # each rank has its own seed
    hits = find(dump, Line(SCRIPT.name, LINES["conv1"]))
    assert {hit.rank for hit in hits if hit.kernels} == {0, 1}


def convolution(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """2-D convolution with the padding ``same``: NCHW, OIHW."""
    size = weight.shape[2]
    out = -(-x.shape[2] // stride)
    pad = max((out - 1) * stride + size - x.shape[2], 0)
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *[(pad // 2, pad - pad // 2)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64))


def test_conv2d_is_the_computed_one_in_every_step(dump: Dump, truth) -> None:
    for number, iteration in enumerate(steps(dump)):
        conv = iteration.kernel("conv1-Conv2d/Conv2D-op0")
        x, weight = (slot.load() for slot in conv.inputs)
        np.testing.assert_array_equal(x, truth["images"])
        np.testing.assert_array_equal(weight, truth[f"before{number}.conv1.weight"])
        np.testing.assert_allclose(
            conv.slot("output").load(), convolution(x, weight, 2), rtol=1e-4, atol=1e-5
        )
        second = iteration.kernel("conv2-Conv2d/Conv2D-op0")
        x, weight = (slot.load() for slot in second.inputs[:2])
        np.testing.assert_allclose(
            second.slot("output").load(), convolution(x, weight, 1), rtol=1e-4, atol=1e-5
        )


def test_weights_and_inputs_are_the_networks(dump: Dump, truth) -> None:
    for number, iteration in enumerate(steps(dump)):
        saved = {
            kernel.name: kernel.slot("output").load() for kernel in iteration.kernels if kernel.is_parameter
        }
        np.testing.assert_array_equal(saved["inputs0"], truth["images"])
        np.testing.assert_array_equal(saved["inputs1"], truth["labels"])
        for name in ("conv1.weight", "conv2.bias", "fc1.weight", "fc2.bias"):  # saved when the step is over
            np.testing.assert_array_equal(saved[name.replace(".", "_")], truth[f"before{number + 1}.{name}"])


WANTED = {
    "conv1": ("Conv2D", {"Conv2DBackpropFilter"}),
    "relu1": ("ReLU", {"ReluGrad"}),
    "pool1": ("MaxPool", {"MaxPoolGrad"}),
    "conv2": ("BiasAdd", {"Conv2DBackpropFilter", "Conv2DBackpropInput", "BiasAddGrad"}),
    "relu2": ("ReLU", {"ReluGrad"}),
    "pool2": ("MaxPool", {"MaxPoolGrad"}),
    "flatten": ("Flatten", {"Reshape"}),
    "fc1": ("BiasAdd", {"MatMul", "BiasAddGrad"}),
    "relu3": ("ReLU", {"ReluGrad"}),
    "fc2": ("BiasAdd", {"MatMul", "BiasAddGrad"}),
}


def hits_of(dump: Dump, layer: str) -> list[Hit]:
    return [hit for hit in find(dump, Line(SCRIPT.name, LINES[layer])) if hit.runs_kernel]


@pytest.mark.parametrize("layer", WANTED)
def test_each_layers_line_has_its_operators_and_their_arrays(dump: Dump, truth, layer: str) -> None:
    last, gradients = WANTED[layer]
    hits = hits_of(dump, layer)
    forward = [hit for hit in hits if not hit.operator.gradient]
    assert forward[-1].operator.op == last
    assert {hit.operator.op for hit in hits if hit.operator.gradient} == gradients
    for hit in hits:
        assert len(hit.kernels) == 2 and hit.shared == 0  # two steps
        assert all(slot.load().size for kernel in hit.kernels for slot in kernel.slots)
    # What the layer gave in PyNative mode is what the kernels of its line gave: it is that layer's line.
    first = forward[-1].kernels[0]
    expected = truth[f"out.{layer}"]
    np.testing.assert_allclose(
        first.slot("output").load().reshape(expected.shape), expected, rtol=1e-4, atol=1e-5
    )


def test_gradients_are_those_that_the_optimizer_takes(dump: Dump, truth) -> None:
    """SGD: new = old - 0.1 * gradient, for the gradient that `find` gives for the layer's line."""
    for layer, op in (("conv1", "Conv2DBackpropFilter"), ("conv2", "Conv2DBackpropFilter")):
        (hit,) = (hit for hit in hits_of(dump, layer) if hit.operator.op == op)
        for number, kernel in enumerate(hit.kernels):
            change = truth[f"before{number + 1}.{layer}.weight"] - truth[f"before{number}.{layer}.weight"]
            np.testing.assert_allclose(change, -0.1 * kernel.slot("output").load(), rtol=1e-3, atol=1e-6)


def test_as_a_dump_json_it_is_whole_and_beside_its_cells(dump: Dump, truth, tmp_path: Path) -> None:
    for done in export(dump, tmp_path, tool="test", root="network._backbone"):
        assert done.faults == ()
    assert {verdict.state for verdict in verify(tmp_path)} == {"complete"}
    records = next(
        rank
        for rank in probe_format.open(tmp_path).ranks
        if any(".SGD." in name for name in rank.records.names)
    ).records
    conv = next(record for record in records if "conv1-Conv2d_Conv2D-op0" in record.name)
    assert conv.parent == "Cell.conv1.Conv2d.forward.0"
    assert conv.tensor("output.0").norm == pytest.approx(float(np.linalg.norm(truth["out.conv1"])), rel=1e-4)
    # Named after fc2 by MindSpore, and the gradient of fc1's bias.
    parents = {r.parent for r in records if ".BiasAddGrad." in r.name}
    assert parents == {f"Cell.{c}.backward.0" for c in ("conv2.Conv2d", "fc1.Dense", "fc2.Dense")}


def test_the_command(dump: Dump, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernel", "check", str(dump.path)]) == 0
    assert main(["kernel", "find", f"{SCRIPT.name}:{LINES['conv2']}", str(dump.path), "--step", "1"]) == 0
    out = capsys.readouterr().out
    assert "self.conv2(x)" in out and "conv2-Conv2d/BiasAdd-op0" in out and "(gradient)" in out
