"""The contract of `when` and `then`; and the loss scaler of this framework."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from contract_keep import steps_of
from contract_planted import *  # noqa: F403
from contract_planted import LAST, RUNS, STEPS
from contract_when import *  # noqa: F403
from launching import run_ranks
from messages import silent
from planted_run import Planted
from probe_analysis import ranks
from probe_torch import PrecisionDebugger
from torch import nn


@pytest.mark.parametrize("overflows", [True, False])
def test_an_overflow_that_a_scaler_skips_triggers_nothing(tmp_path: Path, overflows: bool) -> None:
    """The scale falls until nothing overflows any more; the same overflow without a scaler is a trigger."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**34, enabled=overflows)
    scales = []
    when = ["non_finite", "norm(parameters_grad) > 1e30"]
    keys = {"dump_path": tmp_path, "level": "mix", "keep": {"last": 2}, "when": when}
    with _said(None if overflows else "meets"), PrecisionDebugger(**keys) as debugger:
        for _ in range(30):
            with debugger.one_step(net):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = net(torch.randn(3, 8)).square().mean()
                (scaler.scale(loss) if overflows else loss * 2.0**34).backward()
                if overflows:
                    scaler.step(optimizer)
                    scaler.update()
                scales.append(scaler.get_scale())
    if overflows:
        assert scales[10] < 2.0**30 and scales[-1] == scales[-2], "it was skipped at first, and not at last"
        assert steps_of(tmp_path) == [28, 29]


def test_a_forward_that_is_not_finite_triggers_although_the_scaler_skips_the_update(tmp_path: Path) -> None:
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu")
    with (
        _said("makes the first value"),
        PrecisionDebugger(dump_path=tmp_path, level="mix", when=["non_finite"]) as debugger,
        debugger.one_step(net),
    ):
        scaler.scale(net(torch.ones(3, 8)).log().mean() * float("nan")).backward()
        scaler.step(optimizer)
        scaler.update()


def test_a_scaler_is_as_before_afterwards(tmp_path: Path) -> None:
    step = torch.amp.GradScaler.step
    with PrecisionDebugger(dump_path=tmp_path, level="L0", when=["non_finite"]):
        assert torch.amp.GradScaler.step is not step
    assert torch.amp.GradScaler.step is step


@pytest.fixture
def planted() -> Any:
    return lambda request: run_ranks("planted.py", json.dumps(request))


@pytest.mark.slow
def test_a_gradient_that_one_rank_did_not_average_is_found(planted: Any, tmp_path: Path) -> None:
    """The script sees that weights have drifted apart; the steps that are kept tell whose gradient it was."""
    first = random.Random("unreduced").randrange(1000)
    seeds = list(range(first, first + RUNS))
    planted({"out": str(tmp_path), "seeds": seeds, "steps": STEPS, "kind": "unreduced", "last": LAST})
    for seed in seeds:
        where, found = Planted.of(seed, STEPS, 2), ranks(tmp_path / str(seed))
        assert found.first is not None and found.first.step == f"step{where.step}", (seed, where)
        assert found.first.call.name.endswith("optimizer_grad") and found.first.odd == (where.rank,), seed
        assert "it was not reduced there" in found.sentence
        assert ranks(tmp_path / str(seed), step=where.step - 1).first is None


@contextmanager
def _said(pattern: str | None) -> Iterator[None]:
    if pattern is None:
        with silent():
            yield
    else:
        with pytest.warns(RuntimeWarning, match=pattern):
            yield
