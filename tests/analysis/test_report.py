"""The page as a file: what is damaged is told apart, and equal dumps make equal pages."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import probe_analysis
import probe_format
import pytest
from probe_analysis.calls.compact_run import Shared
from probe_analysis.calls.run import Call
from probe_analysis.report.page import numbers, pack, whole
from probe_format.errors import FormatError
from report_dumps import model, read, tensor, write


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (whole([0, 255]), "u1"), (whole([-1, 3]), "i1"), (whole([256]), "u2"), (whole([-1, 40_000]), "i4"),
        (whole([]), "u1"), (numbers([0.5, math.nan, -math.inf]), "f4"), (numbers([0.1]), "f8"),
        (numbers([1e300]), "f8"),
    ],
)  # fmt: skip
def test_columns_are_narrow_and_exact(column: Any, kind: str) -> None:
    assert f"{column.dtype.kind}{column.dtype.itemsize}" == kind
    raw = pack({"a": [{"b": column}], "texts": ["x"]})
    length = int.from_bytes(raw[:4], "little")
    assert (4 + length) % 8 == 0
    entry = json.loads(raw[4 : 4 + length])["a"][0]["b"]["column"]
    found = np.frombuffer(raw[4 + length :], f"<{entry[0]}", entry[2], entry[1])
    assert np.array_equal(found, column, equal_nan=column.dtype.kind == "f")


def test_a_tensor_that_many_calls_share_is_in_the_page_once(tmp_path: Path) -> None:
    x = tensor(0.5)
    data = {
        f"Torch.f.{i}.forward": {"input_args": [x], "output": [x | {"requires_grad": True}]}
        for i in range(50)
    }
    document, column = read(probe_analysis.report(write(tmp_path / "dump", data)).html)
    assert len(column(document["facts"]["Norm"])) == 2
    assert list(column(document["runs"][0]["fact"])) == [0, 1] * 50


def test_whole_numbers_that_no_float_has_keep_their_digits(tmp_path: Path) -> None:
    big = tensor(0.5, Max=2**63 - 1, Min=-(10**400), Mean=True, Norm=None)
    document, column = read(
        probe_analysis.report(write(tmp_path / "dump", {"Torch.f.0.forward": {"output": [big]}})).html
    )
    (first, second) = document["facts"]["exact"]
    assert first == [0, 0, str(2**63 - 1)]
    assert second[:2] == [0, 1]
    (marks,) = column(document["facts"]["marks"])
    assert [(marks >> 2 * i) & 3 for i in range(4)] == [3, 3, 2, 1]  # text, text, bool, absent


def test_equal_dumps_make_equal_pages(tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model())
    assert probe_analysis.report(folder).html == probe_analysis.report(probe_format.open(folder)).html


def test_a_damaged_rank_is_told_apart(tmp_path: Path) -> None:
    folder = write(tmp_path / "dump", *model(), rank=0)
    write(folder, *model(), rank=1)
    (folder / "step0" / "rank1" / "dump.json").write_text('{"data": {"Torch.')
    found = probe_analysis.report(folder)
    (label,) = found.unread
    assert label.startswith("step0/rank1 of ")
    assert found.non_finite is None
    document, _ = read(found.html)
    assert [run["label"] for run in document["runs"]] == ["step0/rank0"]
    assert document["findings"][0]["state"] == "unknown"
    two, _ = read(probe_analysis.report(folder, folder).html)
    assert [finding["state"] for finding in two["findings"]] == ["same", "unknown", "unknown"]
    assert two["findings"][0]["notes"][-1].startswith("step0/rank1 is skipped: ")
    (folder / "step0" / "rank0" / "dump.json").unlink()
    with pytest.raises(FormatError):
        probe_analysis.report(folder)


def test_a_rank_without_its_stacks_is_on_the_page(tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, *model(planted=planted)) for name, planted in (("a", -1), ("b", 1)))
    whole, column = read(probe_analysis.report(one, two).html)
    opened = [probe_format.open(each) for each in (one, two)]
    for each in (one, two):
        (each / "step0" / "rank" / "stack.json").write_text("no JSON")
    found = probe_analysis.report(*opened)
    assert found.unread.keys() == {f"step0/rank of {each}" for each in (one, two)}
    bare, own = read(found.html)
    assert dict(bare["unread"]) == found.unread
    assert all(
        why.startswith("its calls are on the page without their stacks: ") for why in found.unread.values()
    )
    for with_stacks, without in zip(whole["runs"], bare["runs"], strict=True):
        for key in ("begin", "fact", "parent"):
            assert list(column(with_stacks[key])) == list(own(without[key]))
        assert any(column(with_stacks["stack"])) and not any(own(without["stack"]))
    told = [[(each["state"], each["sentence"]) for each in page["findings"]] for page in (whole, bare)]
    assert told[0] == told[1] and told[0][0][0] == "different"
    with pytest.raises(FormatError, match="is not JSON"):
        _ = opened[0].ranks[0].stack
    (one / "step0" / "rank" / "dump.json").write_text("no JSON")
    with pytest.raises(FormatError, match=r"dump\.json is not JSON"):
        probe_analysis.report(one)


def test_a_circle_in_a_damaged_tree_is_cut(tmp_path: Path) -> None:
    data, _, _ = model(layers=1)
    names = list(data)
    parents = {names[0]: names[1], names[1]: names[0], names[2]: names[2], names[3]: "nowhere", "_": None}
    document, column = read(probe_analysis.report(write(tmp_path / "dump", data, parents)).html)
    above = list(column(document["runs"][0]["parent"]))
    for node in range(len(above)):
        steps = 0
        while node >= 0:
            node = above[node]
            steps += 1
            assert steps <= len(above)


def test_an_empty_dump_has_a_page_that_says_so(tmp_path: Path) -> None:
    found = probe_analysis.report(write(tmp_path / "dump", {}))
    assert (
        read(found.html)[0]["findings"][0]["sentence"] == "No values were recorded, so none can be checked."
    )


def test_each_record_of_two_dumps_is_read_once(tmp_path, monkeypatch):
    read: Counter[tuple[str, str]] = Counter()
    packed = Shared.packed

    def counted(self, document, name, text):
        read[document.where, name] += 1
        return packed(self, document, name, text)

    monkeypatch.setattr(Shared, "packed", counted)
    monkeypatch.setattr(Call, "record", property(lambda call: pytest.fail(f"{call.name} is read again")))
    good, bad = (write(tmp_path / name, *model(planted=n)) for name, n in (("good", -1), ("bad", 1)))
    page = probe_analysis.report(good, bad)
    assert page.diff.verdict.state == "different" and page.non_finite.calls == 18
    assert len(read) == 36 and {*read.values()} == {1}
