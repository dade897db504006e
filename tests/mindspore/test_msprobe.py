"""Promise 4: the real msprobe 26.2 reads what Probe writes of MindSpore. It runs in an environment of its own."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import clients
import mindspore as ms
import pytest
import reference_cells
from mindspore import Tensor, nn, ops
from mindspore_dumping import collected, rank_dir

pytestmark = [pytest.mark.once, pytest.mark.slow]

CORPUS = Path(__file__).parents[1] / "format" / "corpus" / "mindspore"
KINDS: dict[str, dict[str, Any]] = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "summary_mode": "md5"},
    "tensor": {"task": "tensor"},
}
ANY = [("L0", "tensor"), ("L1", "statistics"), ("mix", "statistics"), ("mix", "md5"), ("mix", "tensor")]


@cache
def dump(level: str, kind: str, factor: float = 1.0) -> Path:
    """The rank folder of one step of the reference network. factor: of the last layer's weight."""
    folder = Path(mkdtemp())
    ms.set_seed(1)
    net = reference_cells.Net()
    net.set_train()
    net.head.weight.set_data(Tensor(net.head.weight.asnumpy() * factor))
    x, y = reference_cells.data()
    forward = ms.value_and_grad(lambda x, y: net(x, y), None, net.trainable_params())
    with collected(folder, net, level=level, **KINDS[kind]):
        forward(x, y)
    return rank_dir(folder / "dump")


@cache
def compare(target: Path, golden: Path) -> list[clients.Row]:
    return clients.compare(Path(mkdtemp()) / "compare", target, golden)


def by_name(rows: list[clients.Row]) -> dict[str, clients.Row]:
    return {row["NPU Name"]: row for row in rows}


def shown(rows: list[clients.Row], expected: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """How many rows have which of the dtypes that are expected, and which shape."""
    kinds = {dtype for dtype, _ in expected}
    return Counter((r["NPU Dtype"], r["NPU Tensor Shape"]) for r in rows if r["NPU Dtype"] in kinds)


class Masked(nn.Cell):
    def construct(self, x: Tensor, mode: str) -> Tensor:
        mask = ops.triu(ops.full((4, 4), float("-inf"), dtype=ms.float32), 1)
        return ops.matmul(ops.softmax(ops.matmul(x, x.T) + mask, -1), x)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_mask_and_what_looks_like_a_formula_are_compared(level: str) -> None:
    """msprobe's compare ends at a text that begins as a formula of a spreadsheet does."""
    folder, net = Path(mkdtemp()), nn.SequentialCell(nn.Dense(4, 4))
    net.masked = Masked()
    with collected(folder, net, level=level, task="statistics"):
        net.masked(net(ops.ones((4, 4), ms.float32)), "=mean")
    rank = rank_dir(folder / "dump")
    text = (rank / "dump.json").read_text()
    assert level == "L0" or '" -inf"' in text
    assert level == "L1" or '" =mean"' in text
    rows = compare(rank, rank)
    assert {r["Result"] for r in rows} == {"pass"}
    expected = clients.tensors(rank)
    assert shown(rows, expected) == expected and len(expected) > 1


@pytest.mark.parametrize(("level", "kind"), ANY)
def test_a_dump_equals_itself(level: str, kind: str) -> None:
    """All rows pass, and there are as many rows as we have tensors, of the same dtypes and shapes."""
    rank = dump(level, kind)
    rows = compare(rank, rank)
    assert {row["Result"] for row in rows} == {"pass"}
    assert all(row["NPU Name"] == row["Bench Name"] for row in rows)
    expected = clients.tensors(rank)
    assert shown(rows, expected) == expected and sum(expected.values()) > 50


def test_rows_carry_the_numbers() -> None:
    """A pass alone can mean that nothing was compared."""
    rank = dump("mix", "statistics")
    record = clients.load(rank, "dump.json")["data"]["Functional.cross_entropy.0.forward"]
    row = by_name(compare(rank, rank))["Functional.cross_entropy.0.forward.output.0"]
    for column, key in (("NPU max", "Max"), ("NPU min", "Min"), ("NPU mean", "Mean"), ("NPU l2norm", "Norm")):
        assert float(row[column]) == pytest.approx(record["output"][0][key], rel=1e-6)


CHANGED = "Cell.head.Dense.forward.0.parameters.weight"
BEFORE = "Cell.conv.Conv2d.forward.0.output.0"
AFTER = "Functional.cross_entropy.0.forward.output.0"


def test_changed_weights_show() -> None:
    rows = by_name(compare(dump("mix", "statistics", 1.5), dump("mix", "statistics")))
    assert float(rows[BEFORE]["NormRelativeErr"].rstrip("%")) == 0
    assert float(rows[CHANGED]["NormRelativeErr"].rstrip("%")) == pytest.approx(50, rel=1e-4)
    assert float(rows[AFTER]["NormRelativeErr"].rstrip("%")) > 0.1
    rows = by_name(compare(dump("mix", "md5", 1.5), dump("mix", "md5")))
    assert [rows[n]["Result"] for n in (BEFORE, CHANGED, AFTER)] == ["pass", "error", "error"]
    rows = by_name(compare(dump("mix", "tensor", 1.5), dump("mix", "tensor")))
    assert float(rows[CHANGED]["MaxRelativeErr"]) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_against_a_dump_of_msprobe(level: str) -> None:
    """Theirs of the same run (MindSpore 2.10, msprobe 26.2): every forward row finds its partner and agrees."""
    (golden,) = (CORPUS / f"{level}_statistics" / "dump" / "step0").iterdir()
    rows = [row for row in compare(dump(level, "statistics"), golden) if ".forward." in row["NPU Name"]]
    met = [row for row in rows if row["Bench Name"] not in ("", "N/A", "NaN", "nan")]
    assert len(met) > 30
    numbers = [row["NormRelativeErr"] for row in met if row["NormRelativeErr"].endswith("%")]
    assert len(numbers) > 30 and all(float(n.rstrip("%")) < 1e-2 for n in numbers)
