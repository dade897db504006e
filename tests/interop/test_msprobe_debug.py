"""The real msprobe compares two dumps of single-point save, and probe-format reads msprobe's."""

from __future__ import annotations

from pathlib import Path

import clients
import numpy as np
import probe_save as ps
import pytest
from probe_format.cli.main import main as probe

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

KINDS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "summary_mode": "md5"},
    "tensor": {"task": "tensor"},
}


def dump(folder: Path, kind: str, scale: float) -> Path:
    """A rank with one step: nested values, numbers, texts, gradients that came and that did not."""
    torch.manual_seed(0)
    with ps.Saver(dump_path=folder, **KINDS[kind]) as saver:
        x = torch.randn(3, 4, requires_grad=True)
        y = saver.save({"y": x * (2 * scale), "l": [x + 1, 3, None, "text"]}, "nest")["y"]
        saver.save(x, "x")
        saver.save(np.arange(4, dtype=np.float32), "array")
        saver.save(x * torch.nan, "bad")
        saver.save(5, "number", save_backward=False)
        saver.save(x * 4, "-x")
        saver.save(x * 3, "x")
        (y.relu().sum() + y.sum()).backward()
    return folder / "step0" / "rank"


def compare(cwd: Path, target: Path, golden: Path) -> dict[str, clients.Row]:
    return clients.by_name(clients.compare(cwd, target, golden, "debug.json"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_msprobe_compares_two_debug_dumps(tmp_path: Path, kind: str) -> None:
    one, same, other = (dump(tmp_path / n, kind, s) for n, s in (("one", 1.0), ("same", 1.0), ("other", 1.5)))
    rows = compare(tmp_path / "equal", one, same)
    assert {row["Result"] for row in rows.values()} == {"pass"}
    assert all(row["Bench Name"] == name for name, row in rows.items())
    wanted = {"nest.0.debug.y", "nest.0.debug.l.0", "nest_grad.0.debug.y", "x.0.debug", "x_grad.0.debug", "x.1.debug",
              "array.0.debug", "bad.0.debug", "number.0.debug"}  # fmt: skip
    assert wanted <= set(rows)
    (odd,) = (row for name, row in rows.items() if "-x.0.debug" in name)
    assert kind == "md5" or float(odd["MaxAbsErr" if kind == "tensor" else "Max diff"]) == 0
    rows = compare(tmp_path / "differ", other, one)
    if kind == "md5":
        assert {n: rows[n]["Result"] for n in ("nest.0.debug.y", "x.0.debug", "x_grad.0.debug")} == {
            "nest.0.debug.y": "error", "x.0.debug": "pass", "x_grad.0.debug": "error",
        }  # fmt: skip
    elif kind == "statistics":
        assert float(rows["x_grad.0.debug"]["Max diff"]) == pytest.approx(2.0)
        assert float(rows["x.0.debug"]["Max diff"]) == 0
    else:
        assert float(rows["x_grad.0.debug"]["MaxAbsErr"]) == pytest.approx(2.0)
        assert float(rows["x.0.debug"]["MaxAbsErr"]) == 0
        assert rows["nest.0.debug.y"]["Data_name"]


def test_msprobe_refuses_numpy_alone_and_probe_does_not(tmp_path: Path) -> None:
    """As the page of probe-save says."""
    for name, scale in (("one", 1), ("other", 2)):
        with ps.Saver(dump_path=tmp_path / name) as saver:
            saver.save(np.arange(4, dtype=np.float32) * scale, "array")
    one, other = (tmp_path / name / "step0" / "rank" for name in ("one", "other"))
    with pytest.raises(RuntimeError, match="numpy"):
        compare(tmp_path / "compared", one, other)
    assert probe(["diff", str(tmp_path / "one"), str(tmp_path / "one")]) == 0
    assert probe(["diff", str(tmp_path / "one"), str(tmp_path / "other")]) == 1
