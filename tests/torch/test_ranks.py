"""Which process this is, before and after torch.distributed knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from probe_torch.ranks import current_rank, world_size


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield


def test_not_distributed() -> None:
    assert (current_rank(), world_size()) == (None, None)


def test_the_launcher_tells_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (current_rank(), world_size()) == (3, 8)


@pytest.mark.parametrize("rank", ["", "-1", "x", "1.5", "²", "9" * 30])
def test_what_is_no_rank_is_none(rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert (current_rank(), world_size()) == (None, None)


def test_a_world_of_none_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    assert (current_rank(), world_size()) == (0, None)
    monkeypatch.setenv("WORLD_SIZE", "0")
    assert world_size() is None


def test_the_group_beats_the_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert (current_rank(), world_size()) == (0, 1)
    finally:
        dist.destroy_process_group()
    assert (current_rank(), world_size()) == (3, 8)
