"""`tensor_files: packed`: the same tensors, in packs, wherever files can be."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import probe_format
import pytest
from documents import leaves, rank_dir, records, report, strict, tensor_bytes
from framework import Framework
from probe_format.cli.main import main as probe
from probe_format.errors import FormatError

TENSOR = {"level": "mix", "task": "tensor", "tensor_files": "packed"}


def train(framework: Framework, dump: Path, *steps: int, **keys: Any) -> Any:
    """Dump steps of these numbers, and return the debugger, which is still open."""
    net = framework.sequence(framework.linear(2, 2), framework.layer())
    debugger = framework.debugger(dump_path=dump, **{**TENSOR, **keys})
    for number in steps:
        debugger.set_init_step(number)
        debugger.start(net)
        framework.train(net, framework.ones(3, 2))
        debugger.stop()
        debugger.step()
    return debugger


def packs(rank: Path) -> list[str]:
    return [name for name in os.listdir(rank / "dump_tensor_data") if name.endswith(".pack")]


@pytest.mark.parametrize(
    "keys", [{}, {"async_dump": True}, {"share": False}, {"summary_mode": "md5"}], ids=str
)
def test_every_tensor_is_read_from_its_pack_and_unpacked(
    framework: Framework, tmp_path: Path, keys: dict[str, Any]
) -> None:
    if "summary_mode" in keys:
        keys = {"task": "statistics", "tensor_list": ["Linear", "Dense"], **keys}
    train(framework, tmp_path, 0, **keys).close()
    rank = rank_dir(tmp_path)
    there = tensor_bytes(rank)
    saved = {leaf["data_name"]: leaf for leaf in leaves(records(tmp_path)) if "data_name" in leaf}
    assert there.keys() == saved.keys() and packs(rank) == os.listdir(rank / "dump_tensor_data") == [
        "000.pack"
    ]
    assert len(saved) == report(tmp_path)["tensor_files"] > 10
    assert all(f"{zlib.crc32(there[name]):08x}" == leaf["data_crc32"] for name, leaf in saved.items())
    assert probe(["verify", str(tmp_path)]) == 0
    values = loaded(tmp_path)
    assert probe(["unpack", str(tmp_path)]) == 0
    assert {f.name: f.read_bytes() for f in (rank / "dump_tensor_data").iterdir()} == there
    assert probe(["verify", str(tmp_path)]) == probe(["unpack", str(tmp_path)]) == 0
    again = loaded(tmp_path)
    assert values.keys() == again.keys() and all(np.array_equal(values[name], again[name]) for name in values)


def loaded(dump: Path) -> dict[str, Any]:
    (rank,) = probe_format.open(dump).ranks
    tensors = [t for record in rank.records for t in record.tensors if "data_name" in t.json]
    return {tensor.name: tensor.load() for tensor in tensors}


@pytest.mark.parametrize("share", [True, False])
def test_the_longest_names_are_read_and_unpacked(framework: Framework, tmp_path: Path, share: bool) -> None:
    keys = {**TENSOR, "level": "debug", "share": share}
    with framework.debugger(dump_path=tmp_path, **keys) as debugger:
        for n in range(230, 262):
            debugger.save([framework.ones(2, 2), np.ones(3)], "v" * n)
        debugger.step()
    values = loaded(tmp_path)
    rank = rank_dir(tmp_path)
    names = [leaf["data_name"] for leaf in leaves(strict(rank / "debug.json")["data"])]
    assert max(map(len, names)) == 255 and len(values) == len(names) == 64
    assert probe(["verify", str(tmp_path)]) == probe(["unpack", str(tmp_path)]) == 0
    assert {*os.listdir(rank / "dump_tensor_data")} == {*names}
    again = loaded(tmp_path)
    assert all(np.array_equal(values[name], again[name]) for name in values)


def test_a_changed_byte_is_found(framework: Framework, tmp_path: Path) -> None:
    train(framework, tmp_path, 0).close()
    (rank,) = probe_format.open(tmp_path).ranks
    tensor = next(t for record in rank.records for t in record.tensors if t.place is not None)
    entry = tensor.place
    raw = bytearray(entry.path.read_bytes())
    raw[entry.start + entry.size - 3] ^= 1
    entry.path.write_bytes(raw)
    with pytest.raises(FormatError, match="was changed"):
        tensor.load()
    assert probe(["verify", str(tmp_path)]) == probe(["unpack", str(tmp_path)]) == 4
    assert packs(rank.path)


def test_packs_of_a_run_that_goes_on_stay(framework: Framework, tmp_path: Path) -> None:
    net = framework.sequence(framework.linear(2, 2))
    with framework.debugger(dump_path=tmp_path, **TENSOR) as debugger:
        debugger.start(net)
        net(framework.ones(3, 2))
        assert probe(["unpack", str(tmp_path)]) == 1
        debugger.stop()  # its files are whole, and the step may go on
        assert probe(["unpack", str(tmp_path)]) == 1
        debugger.start(net)
        net(framework.ones(3, 2))
        assert packs(rank_dir(tmp_path)) == ["000.pack"]
        assert loaded(tmp_path)
    assert probe(["verify", str(tmp_path)]) == 0


def test_steps_that_are_not_kept_and_earlier_dumps_go_with_their_packs(
    framework: Framework, tmp_path: Path
) -> None:
    train(framework, tmp_path, 0, 1, 2, keep={"last": 1}).close()
    assert sorted(os.listdir(tmp_path)) == ["step2"]
    train(framework, tmp_path, 2, overwrite=True, tensor_files="one").close()
    assert not packs(rank_dir(tmp_path, 2))


def test_a_limit_holds_and_counts_no_blocks_of_files(framework: Framework, tmp_path: Path) -> None:
    most = 1 << 20
    train(framework, tmp_path / "dump", *range(40), max_bytes=most).close()
    files = [each for each in (tmp_path / "dump").rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) <= most
    whole = [each for each in files if each.name == "000.pack" and each.stat().st_size]
    train(framework, tmp_path / "one", *range(40), max_bytes=most, tensor_files="one").close()
    ones = {each.parent for each in (tmp_path / "one").rglob("*.*") if each.suffix in (".pt", ".npy")}
    assert len(whole) > len(ones) > 0


def test_saved_values_are_packed(framework: Framework, tmp_path: Path) -> None:
    with framework.debugger(dump_path=tmp_path, **{**TENSOR, "level": "debug"}) as debugger:
        for n in range(3):
            debugger.save({"x": framework.ones(2, 2), "y": np.full(3, float(n))}, "v")
        debugger.step()
    rank = rank_dir(tmp_path)
    saved = {leaf["data_name"] for leaf in leaves(strict(rank / "debug.json")["data"])}
    assert tensor_bytes(rank).keys() == saved and len(saved) == 6
    assert all(name.endswith(".pack") for name in os.listdir(rank / "dump_tensor_data"))
    assert probe(["verify", str(tmp_path)]) == 0
