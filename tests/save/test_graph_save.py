"""save, save_grad and step inside what MindSpore compiles: GRAPH_MODE, jit, and PyNative alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402
from probe_format.names import safe_file_name  # noqa: E402
from probe_mindspore.graph.save import save, save_grad, step  # noqa: E402


@pytest.fixture(autouse=True)
def next_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The step and the number of the next file: both count on for the whole process."""
    folder = tmp_path_factory.mktemp("before")
    save(str(folder), "x", Tensor([1.0]))
    step()
    (path,) = folder.rglob("*.npy")
    yield int(path.parts[-3].removeprefix("step")) + 1, int(path.stem.rpartition("_")[2]) + 1
    ms.set_context(mode=ms.PYNATIVE_MODE)


def files(folder: Path) -> dict[str, Any]:
    """Name without the number -> values, of every file below."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.npy"), key=lambda p: int(p.stem.rpartition("_")[2])):
        key = f"{path.parent.relative_to(folder)}/{path.stem.rpartition('_')[0]}"
        found.setdefault(key, []).append(np.load(path))
    return found


class Net(nn.Cell):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = str(folder)
        self.dense = nn.Dense(
            3, 2, weight_init=Tensor(np.arange(6.0).reshape(2, 3), ms.float32), has_bias=False
        )

    def construct(self, x: Any) -> Any:
        x = save_grad(self.folder, "x", x)
        h = self.dense(x)
        save(self.folder, "h", h)
        h = save_grad(self.folder, "h", h)
        save(self.folder, "nest", {"a": h.sum(), "l": [h.astype(ms.float16), (x > 0).astype(ms.int32)]})
        for _ in range(2):
            save(self.folder, "again", x)
        return (h * h).sum()


def run(folder: Path, way: str) -> Any:
    ms.set_context(mode=ms.GRAPH_MODE if way == "graph" else ms.PYNATIVE_MODE)
    net = Net(folder)
    if way == "jit":
        net.construct = ms.jit(net.construct)
    grad = ms.value_and_grad(net, 0, net.trainable_params())
    x = Tensor(np.array([[1.0, -2.0, 3.0]]), ms.float32)
    results = []
    for _ in range(2):
        value, (dx, dw) = grad(x)
        results.append([value.asnumpy(), dx.asnumpy(), dw[0].asnumpy()])
        step()
    return results


@pytest.mark.parametrize("way", ["pynative", "graph", "jit"])
def test_values_gradients_and_steps(tmp_path: Path, way: str, next_file: tuple[int, int]) -> None:
    results = run(tmp_path, way)
    found = files(tmp_path)
    x = np.array([[1.0, -2.0, 3.0]], np.float32)
    w = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    h = x @ w.T
    for n, (value, dx, dw) in enumerate(results):
        at = f"step{next_file[0] + n}/rank0"
        assert value == (h * h).sum()
        assert np.array_equal(dx, 2 * h @ w)
        assert np.array_equal(dw, (2 * h).T @ x)
        assert [a.tolist() for a in found[f"{at}/h_float32"]] == [h.tolist()]
        assert [a.tolist() for a in found[f"{at}/h_grad_float32"]] == [(2 * h).tolist()]
        assert [a.tolist() for a in found[f"{at}/x_grad_float32"]] == [dx.tolist()]
        assert found[f"{at}/nest.a_float32"][0].item() == h.sum()
        assert found[f"{at}/nest.l.0_float16"][0].dtype == np.float16
        assert found[f"{at}/nest.l.1_int32"][0].tolist() == [[1, 0, 1]]
        assert [a.tolist() for a in found[f"{at}/again_float32"]] == [x.tolist()] * 2
    assert len(found) == 2 * 7


def test_names_and_earlier_files(tmp_path: Path, next_file: tuple[int, int]) -> None:
    at, number = next_file
    folder = tmp_path / f"step{at}" / "rank0"
    earlier = folder / safe_file_name(f"a/../b_bfloat16_{number}.npy")  # of another run into the same folder
    folder.mkdir(parents=True)
    np.save(earlier, np.float32(1.0))
    save(str(tmp_path), "a/../b", Tensor(2.0, ms.bfloat16))
    step()
    (found,) = (path for path in tmp_path.rglob("*.npy") if path != earlier)
    assert found.parent == earlier.parent
    assert found.name == safe_file_name(f"a/../b_bfloat16_{number + 1}.npy")
    assert (np.load(earlier).item(), np.load(found).item()) == (1.0, 2.0)
    assert np.load(found).dtype == np.float32
    assert not list(tmp_path.rglob("*.tmp"))


def test_what_cannot_be_written_is_told_and_costs_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    save(str(tmp_path / "file"), "x", Tensor([1.0]))
    step()
    assert "x is not saved" in caplog.text


@pytest.mark.parametrize(("save_dir", "name"), [("", "x"), ("d", ""), (3, "x"), ("d", None)])
def test_mistakes(save_dir: Any, name: Any) -> None:
    with pytest.raises(Exception, match="must be a text"):
        save(save_dir, name, Tensor([1.0]))


def test_the_operator_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are Ascend's alone, but outside of graphs the host runs it: the names can be seen here."""
    told = ms.get_context
    with monkeypatch.context() as patch:
        patch.setattr(ms, "get_context", lambda what: "Ascend" if what == "device_target" else told(what))
        save(str(tmp_path), "x", {"a": Tensor([1.0]), "l": [Tensor([2], ms.int32)]})
    step()
    assert {k: [a.tolist() for a in v] for k, v in files(tmp_path).items()} == {
        "step0/rank0/x.a_float32": [[1.0]],
        "step0/rank0/x.l.0_int32": [[2]],
    }
