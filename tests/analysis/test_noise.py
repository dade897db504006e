"""A run of inputs moved by one unit in the last place as the measured noise of ``probe diff --noise``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import probe_analysis
import torch
from dumped_steps import dumped
from probe_torch import perturb
from torch import nn


def run(folder: Path, seed: int | None = None, eps: float = 1e-5) -> Path:
    """Dump a step of a small network; with a seed its inputs are perturbed, and one norm may have another eps."""
    torch.manual_seed(0)
    layers: list[Any] = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(4)]
    layers[2][2].eps = eps
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    x = torch.randn(64, 32)
    step = lambda _: model(x if seed is None else perturb(x, seed)).square().mean().backward()  # noqa: E731
    return dumped(folder, step, model)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("noise")
    return {
        "plain": run(folder / "plain"),
        "one": run(folder / "one", 1),
        "two": run(folder / "two", 2),
        "eps": run(folder / "eps", eps=2e-5),
    }


def test_what_rounding_alone_makes_is_noise(dumps: dict[str, Path]) -> None:
    exact = probe_analysis.diff(dumps["plain"], dumps["one"], tolerance=0.0)
    assert exact.verdict.state == "different", "the inputs differ, by as little as they can"
    measured = probe_analysis.diff(dumps["plain"], dumps["one"], noise=dumps["two"])
    assert measured.verdict.state in ("same", "within tolerance"), measured.verdict.sentence


def test_a_fault_is_more_than_that_noise(dumps: dict[str, Path]) -> None:
    verdict = probe_analysis.diff(dumps["plain"], dumps["eps"], noise=dumps["two"]).verdict
    assert verdict.state == "different"
    assert verdict.call is not None
    assert verdict.call.name == "Functional.layer_norm.2.forward"
    assert "1e-05 against 2e-05" in verdict.sentence
