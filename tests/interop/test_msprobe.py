"""Promise 4: the real msprobe 26.2 reads what Probe writes, and Probe reads what msprobe writes.

Every msprobe call costs seconds of imports, so dumps and comparisons are made once and shared.
"""

from __future__ import annotations

from pathlib import Path

import clients
import numpy as np
import probe_format
import pytest
from clients import by_name
from probe_format.values import plain

pytestmark = pytest.mark.slow

KINDS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
#: Each level, each kind and each variant: most of these are made for other tests as well.
ANY = [("L0", "tensor", "plain"), ("L1", "statistics", "plain"), *(("mix", kind, "plain") for kind in KINDS)]
ANY += [("L0", "md5", "accumulated"), ("mix", "md5", "checkpointed"), ("mix", "statistics", "masked")]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


class Shop:
    """Dumps and comparisons, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dumps: dict[tuple[str, str, str, str], Path] = {}
        self._rows: dict[tuple[Path, Path], list[clients.Row]] = {}

    def dump(self, level: str, kind: str, variant: str = "plain", tool: str = "probe") -> Path:
        key = (level, kind, variant, tool)
        if key not in self._dumps:
            config = {"level": level, "risk_level": "ALL", **KINDS[kind]}
            self._dumps[key] = clients.dump(self._folder / "-".join(key), tool, config, variant)
        return self._dumps[key]

    def compare(self, target: Path, golden: Path) -> list[clients.Row]:
        if (target, golden) not in self._rows:
            cwd = self._folder / f"compare{len(self._rows)}"
            self._rows[target, golden] = clients.compare(cwd, target, golden)
        return self._rows[target, golden]


@pytest.fixture(scope="session")
def shop(folder: Path) -> Shop:
    return Shop(folder)


@pytest.mark.parametrize(("level", "kind", "variant"), ANY)
def test_a_dump_equals_itself(shop: Shop, level: str, kind: str, variant: str) -> None:
    """All rows pass, and there are as many rows as we have tensors, of the same dtypes and shapes."""
    rank = shop.dump(level, kind, variant)
    assert rank.name == "rank"
    rows = shop.compare(rank, rank)
    assert {r["Result"] for r in rows} == {"pass"}
    assert all(r["NPU Name"] == r["Bench Name"] for r in rows)
    assert sum(clients.tensors(rank).values()) > 50
    assert clients.rows_of_tensors(rows) == clients.tensors(rank)


def test_rows_carry_the_numbers_and_the_stack(shop: Shop) -> None:
    """A pass alone can mean that nothing was compared: the columns hold our numbers and the user's line."""
    rank = shop.dump("mix", "statistics")
    record = clients.load(rank, "dump.json")["data"]["Functional.cross_entropy.0.forward"]
    row = by_name(shop.compare(rank, rank))["Functional.cross_entropy.0.forward.output.0"]
    for column, key in (("NPU max", "Max"), ("NPU min", "Min"), ("NPU mean", "Mean"), ("NPU l2norm", "Norm")):
        assert float(row[column]) == pytest.approx(record["output"][0][key], rel=1e-6)
    stacks = {r["NPU_Stack_Info"] for r in shop.compare(rank, rank)}
    assert any("job.py" in s and "self.head(torch.log(peak + shift))" in s for s in stacks)


def test_one_sum_in_several_slots_is_compared_slot_by_slot(shop: Shop) -> None:
    """`shared_with` is a key that msprobe does not know: it passes over it, and compares the numbers beside it."""
    rank, name = shop.dump("L0", "statistics", "shared"), "Module.mix.Mix.backward.0"
    shared = clients.load(rank, "dump.json")["data"][name]["output"]
    assert [leaf["shared_with"] for leaf in shared] == [
        ["output.1", "output.2"], ["output.0", "output.2"], ["output.0", "output.1"],
    ]  # fmt: skip
    rows = shop.compare(rank, rank)
    assert {r["Result"] for r in rows} == {"pass"}
    assert clients.rows_of_tensors(rows) == clients.tensors(rank)
    for place, leaf in enumerate(shared):
        row = by_name(rows)[f"{name}.output.{place}"]
        assert float(row["NPU l2norm"]) == pytest.approx(leaf["Norm"]) and leaf["Norm"] > 0


def test_checksums_and_files_are_what_is_compared(shop: Shop) -> None:
    sums = by_name(shop.compare(shop.dump("mix", "md5"), shop.dump("mix", "md5")))
    assert all(len(r["NPU MD5"]) == 8 for r in sums.values() if r["NPU Dtype"] == "torch.float32")
    files = shop.compare(shop.dump("mix", "tensor"), shop.dump("mix", "tensor"))
    row = by_name(files)["Functional.cross_entropy.0.forward.input.0"]
    assert float(row["Cosine"]) == pytest.approx(1.0)
    assert row["Data_name"]


# The last layer's weight was changed: what comes before it is equal, the weight and what follows differ.
BEFORE = "Functional.conv1d.0.forward.output.0"
CHANGED = "Module.head.Linear.forward.0.parameters.weight"
AFTER = "Functional.cross_entropy.0.forward.output.0"


def test_what_looks_like_a_formula_is_read_as_it_was_meant(shop: Shop) -> None:
    """msprobe's compare ends at a text that begins as a formula does; `test_a_dump_equals_itself` ran it."""
    rank = shop.dump("mix", "statistics", "masked")
    data = clients.load(rank, "dump.json")["data"]
    (masked,) = (record for name, record in data.items() if "masked_fill.0.forward" in name)
    assert masked["output"][0]["Min"] == " -inf" and float(masked["output"][0]["Min"]) == -np.inf
    given = data["Module.masked.Masked.forward.0"]
    texts = [given["input_args"][1], *given["input_kwargs"].values()]
    assert [text["value"] for text in texts] == [" =mean", "a; -b", "(-0-1j)", " -0.5", "{-1}"]
    assert [plain(text) for text in texts] == ["=mean", "a;-b", "(-0-1j)", "-0.5", "{-1}"]
    assert "x @ x.mT; +scores" in (rank / "stack.json").read_text()
    row = by_name(shop.compare(rank, rank))["Tensor.masked_fill.0.forward.output.0"]
    assert float(row["NPU min"]) == -np.inf


def test_changed_weights_show_in_statistics(shop: Shop) -> None:
    rows = by_name(shop.compare(shop.dump("mix", "statistics", "perturbed"), shop.dump("mix", "statistics")))
    assert float(rows[BEFORE]["NormRelativeErr"].rstrip("%")) == 0
    assert float(rows[CHANGED]["NormRelativeErr"].rstrip("%")) == pytest.approx(50, rel=1e-4)
    assert float(rows[AFTER]["NormRelativeErr"].rstrip("%")) > 0.1


def test_changed_weights_show_in_checksums(shop: Shop) -> None:
    rows = by_name(shop.compare(shop.dump("mix", "md5", "perturbed"), shop.dump("mix", "md5")))
    assert [rows[n]["Result"] for n in (BEFORE, CHANGED, AFTER)] == ["pass", "error", "error"]


def test_changed_weights_show_in_tensors(shop: Shop) -> None:
    rows = by_name(shop.compare(shop.dump("mix", "tensor", "perturbed"), shop.dump("mix", "tensor")))
    assert float(rows[BEFORE]["MaxAbsErr"]) == 0
    assert float(rows[CHANGED]["MaxRelativeErr"]) == pytest.approx(0.5, rel=1e-4)
    assert float(rows[AFTER]["MaxAbsErr"]) > 1e-3


def test_not_a_number_is_flagged(shop: Shop) -> None:
    rows = by_name(shop.compare(shop.dump("mix", "statistics", "nan"), shop.dump("mix", "statistics")))
    assert rows["Torch.log.0.forward.output.0"]["Result"] == "error"
    assert "nan" in rows["Torch.log.0.forward.output.0"]["Err_message"]
    assert rows[BEFORE]["Result"] == "pass"


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_graph_visualize_draws_every_node(shop: Shop, folder: Path, level: str) -> None:
    """Not at L1: construct.json is empty there, as msprobe's own is, and graph_visualize needs a tree."""
    rank = shop.dump(level, "statistics")
    construct = clients.load(rank, "construct.json")
    nodes = clients.graph_nodes(folder / f"graph-{level}", rank)
    assert len(construct) > 20
    assert not set(construct) - set(nodes)
    assert all(nodes[n] == parent for n, parent in construct.items() if parent is not None)


@pytest.mark.parametrize(
    ("level", "variant", "first"), [("mix", "nan", "Torch.log"), ("L1", "infinite", "Tensor.__add__")]
)
def test_overflow_check_finds_the_injected_value(
    shop: Shop, folder: Path, level: str, variant: str, first: str
) -> None:
    found = clients.overflows(folder / f"{variant}-{level}", shop.dump(level, "statistics", variant).parent)
    assert found[0]["op_name"].startswith(first)
    assert "job.py" in "".join(found[0]["stack_info"])


def test_overflow_check_finds_nothing_in_a_healthy_dump(shop: Shop, folder: Path) -> None:
    assert clients.overflows(folder / "healthy", shop.dump("mix", "statistics").parent) == []


def test_overflow_check_and_graph_visualize_read_a_mask(shop: Shop, folder: Path) -> None:
    """overflow_check takes the mask in a dump by msprobe for an overflow. It knows minus infinity in no form that
    compare takes, and passes over ours (docs: migrating-from-msprobe.md).
    """
    ours, own = (shop.dump("mix", "statistics", "masked", tool).parent for tool in ("probe", "msprobe"))
    found = [clients.overflows(folder / f"mask-{i}", step) for i, step in enumerate((ours, own))]
    assert [[f["op_name"] for f in part] for part in found] == [[], ["Torch.full.0.forward"]]
    assert clients.graph_nodes(folder / "graph-masked", shop.dump("mix", "statistics", "masked"))


LOST = [("mix", "statistics"), ("mix", "tensor"), ("L0", "md5")]


def lost(rank: Path) -> tuple[set[str], set[str]]:
    """The slots of a dump whose gradients are lost, and those whose files alone are."""
    records = probe_format.open(rank).ranks[0].lost.records
    each = [(f"{name}.{loss.slot}", loss.known) for name, losses in records.items() for loss in losses]
    return {name for name, known in each if not known}, {name for name, known in each if known}


@pytest.mark.parametrize(("level", "kind"), LOST)
def test_compare_passes_over_what_is_lost(shop: Shop, level: str, kind: str) -> None:
    """No row goes, moves or is an error; a slot that is lost has no numbers, and all others have theirs."""
    whole, gone = shop.dump(level, kind), shop.dump(level, kind, "lost")
    gradients, files = lost(gone)
    assert lost(whole) == (set(), set()) and len(gradients) > 10 and (len(files) > 3) == (kind == "tensor")
    names = [row["NPU Name"] for row in shop.compare(whole, whole)]
    assert {name for name in gradients | files if ".backward." in name} <= set(names)
    for pair in ((gone, whole), (whole, gone), (gone, gone)):
        rows = shop.compare(*pair)
        assert [row["NPU Name"] for row in rows] == names
        assert {row["Result"] for row in rows} <= {"pass", "warning"}
        side = "NPU" if pair[0] == gone else "Bench"
        empty = {row["NPU Name"] for row in rows if "torch." not in row[f"{side} Dtype"]}
        assert gradients & set(names) <= empty and not files & empty


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_graph_visualize_passes_over_what_is_lost(shop: Shop, folder: Path, level: str) -> None:
    kind = "statistics" if level == "mix" else "md5"
    whole, gone = shop.dump(level, kind), shop.dump(level, kind, "lost")
    nodes = clients.graph_nodes(folder / f"whole-{level}", whole)
    for i, pair in enumerate(((gone, None), (gone, whole), (whole, gone), (gone, gone))):
        assert clients.graph_nodes(folder / f"lost-{level}-{i}", *pair).items() >= nodes.items()


# --- the other way round ---


@pytest.mark.parametrize(("level", "kind"), [("mix", "tensor"), ("L0", "md5")])
def test_our_reader_opens_what_msprobe_writes(shop: Shop, level: str, kind: str) -> None:
    rank = shop.dump(level, kind, tool="msprobe")
    raw = clients.load(rank, "dump.json")
    (step,) = probe_format.open(rank.parent.parent).steps
    (opened,) = step.ranks
    records = list(opened.records)
    assert [r.name for r in records] == list(raw["data"])
    tensors = [t for r in records for t in r.tensors]
    assert len(tensors) == sum(clients.tensors(rank).values())


def test_our_numbers_are_those_of_msprobe(shop: Shop) -> None:
    """One script, one changed import line: the same step under both tools gives the same forward records."""
    ours, theirs = shop.dump("mix", "statistics"), shop.dump("mix", "statistics", tool="msprobe")
    names = [
        n
        for n in clients.load(theirs, "dump.json")["data"]
        if ".forward" in n and not n.startswith("Tensor.add_.")  # the optimizer's, and batch_norm's counter
    ]
    mine = clients.load(ours, "dump.json")["data"]
    assert not [n for n in names if n not in mine]
    rows = by_name(shop.compare(ours, theirs))
    compared = [r for n, r in rows.items() if any(n.startswith(f"{name}.") for name in names)]
    assert len(compared) > 100
    for row in compared:
        assert row["Bench Name"] == row["NPU Name"]
        assert row["Result"] == "pass"
        if row["NPU Dtype"] == "torch.float32":
            for column in ("max", "min", "mean", "l2norm"):
                np.testing.assert_allclose(
                    float(row[f"NPU {column}"]), float(row[f"Bench {column}"]), rtol=1e-5, atol=1e-6
                )
